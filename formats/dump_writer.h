// Writes a logit dump: blocks are coded by worker threads, off the caller's path, and written in record
// order. Contract: bytes depend on header, level and rows alone, never on threads or on the order in which
// records finish. Records begin in input order; their rows may arrive interleaved (decode lanes). Coded
// blocks ahead of their turn wait within a memory bound and then spill to an unlinked file. Errors:
// Error{io}. Not finished means not a dump: without finish() a file stays OUT.part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "formats/dump_format.h"

namespace logitgate {

struct DumpWriterOptions {
  int level = 3;                            // zstd level
  int threads = 0;                          // coding threads; 0: all cores
  bool force = false;                       // overwrite an existing output
  bool resume = false;                      // continue OUT.part
  size_t memory_bound = size_t{256} << 20;  // coded blocks waiting for their turn, then spilled
};

class DumpWriter {
 public:
  // output: a path, or "-" for stdout (refused on a terminal).
  DumpWriter(const std::string& output, const DumpHeader& header, const DumpWriterOptions& options);
  ~DumpWriter();

  // With resume: how many complete records the interrupted output already holds (they are kept); the caller
  // skips them. already_finished(): the finished file matches and there is nothing to do.
  uint64_t resumed_records() const;
  bool already_finished() const;
  // Error{incomparable} if record i (0-based) of those that are kept is not this record: the input has
  // changed since.
  void check_resumed(uint64_t i, const DumpRecord& record) const;

  // Declares the next record, in input order; returns its ticket for add_rows.
  uint64_t begin_record(const DumpRecord& record);
  // Appends n_rows rows [n_rows, n_vocab] to the record; blocks while the coders or the output are behind.
  // All rows of a record come as the same kind. Calls come from one thread at a time; an error of a coding
  // thread is thrown by the next call.
  void add_rows(uint64_t ticket, std::span<const float> logits, uint32_t n_rows);
  void add_rows(uint64_t ticket, std::span<const double> logits, uint32_t n_rows);
  // Appends rows as another dump holds them (recover, and topk imports).
  void add_block(uint64_t ticket, const RowBlock& block);

  // Writes the end frame and the seek table, syncs and renames OUT.part to OUT. Every record must have all
  // its rows.
  void finish();
  uint64_t spilled_bytes() const;  // what went through the spill file so far

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace logitgate
