// Reads a logit dump of one or more segments, as a stream in bounded memory or, from a seekable file, by record.
// Contract: every checksum is verified; a file that is cut or damaged gives Error{corrupt} that names file and offset, a
// declared size is bounded before it is allocated. Blocks are decoded ahead by worker threads, results come in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

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

  const std::string& name() const;       // for messages
  const DumpHeader& header() const;      // of the first segment; the others agree with it
  bool seekable() const;

  // Stream: the next record, or false at the true end of the dump. Skips what is left of the record before.
  bool next_record(DumpRecord& record);
  // The next rows of the current record; false after its last one.
  bool next_rows(RowBlock& block);

  // Random access (seekable only): finds a record by id and makes it the current one; false if there is none.
  // The first call reads the index: at most 64 bytes a record.
  bool find_record(const std::string& id, DumpRecord& record);
  // Records of all segments (reads the index where seekable).
  uint64_t n_records();
  // Salvage only: where and why reading stopped; nothing if the dump was whole.
  std::optional<std::string> damage() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace logitgate
