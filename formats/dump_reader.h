// Reads a logit dump of one or more segments, as a stream in bounded memory or, from a seekable file, by
// record. Contract: every checksum is verified; a file that is cut or damaged gives Error{corrupt} that names
// file and offset, a declared size is bounded before it is allocated. Blocks are decoded ahead by worker
// threads, results come in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/dump_format.h"

namespace logitgate {

struct DumpReaderOptions {
  int threads = 0;           // decoding threads; 0: all cores
  bool allow_mixed = false;  // segments of other devices, algorithms or versions
  bool salvage = false;      // stop quietly before the first damaged or incomplete record (recover)
};

class DumpReader {
 public:
  // input: a path, or "-" for stdin.
  DumpReader(const std::string& input, const DumpReaderOptions& options);
  ~DumpReader();

  const std::string& name() const;   // for messages
  const DumpHeader& header() const;  // of the first segment; the others agree with it
  bool seekable() const;
  uint64_t stored_bytes() const;  // of the whole dump, once the stream is at its end

  // Headers of all segments read so far; of all where the index was read (n_records, find_record).
  const std::vector<DumpHeader>& segment_headers() const;

  // Stream: the next record, or false at the true end of the dump. Skips what is left of the record before.
  bool next_record(DumpRecord& record);
  // The next rows of the current record; false after its last one.
  bool next_rows(RowBlock& block);

  // Random access (seekable only): finds a record by id and makes it the current one; false if there is none.
  // The stream goes on where it was with the next next_record(). The first call reads the index: at most 64
  // bytes a record.
  bool find_record(const std::string& id, DumpRecord& record);
  // Records of all segments where seekable (reads the index); else those that came so far.
  uint64_t n_records();
  // Salvage only: where and why reading stopped; nothing if the dump was whole.
  std::optional<std::string> damage() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What a dump holds, every byte of it read and verified.
struct DumpSummary {
  DumpHeader header;  // of the first segment
  uint64_t segments = 0;
  uint64_t records = 0;
  uint64_t rows = 0;
  uint64_t tokens = 0;
  uint64_t stored_bytes = 0;   // of the file
  uint64_t decoded_bytes = 0;  // of its rows as they are stored, uncompressed
};
DumpSummary verify_dump(const std::string& path, const DumpReaderOptions& options = {});

// Writes every record that is complete in a cut or damaged dump as a finished one: frames are copied as they
// are. Returns how many. in: a file (it is read twice). `damage`, where given, says what was wrong; it stays
// empty for a dump that was whole.
uint64_t recover_dump(const std::string& in, const std::string& out, bool force,
                      std::string* damage = nullptr);

}  // namespace logitgate
