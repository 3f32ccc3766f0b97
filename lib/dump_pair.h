// Walks two dumps in step and yields the pairs of rows that belong together, by record id and position.
// Contract: the order of records may differ only where one side is a seekable file. Another n_vocab, other tokens for an
// id, a record or a selected row that one side lacks, no record or no row at all: Error{incomparable} that names the first.
// Memory: the blocks of the pairs handed out; once orders differ, at most 28 bytes a record for the ids.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "formats/dump_format.h"
#include "formats/id_set.h"
#include "lib/metrics.h"
#include "lib/rows.h"

namespace logitgate {

// What the walk needs of a dump: formats/dump_reader.h behind an interface, so that tests can feed rows.
// next_record() refuses an id that comes twice.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  virtual const std::string& name() const = 0;
  virtual const DumpHeader& header() const = 0;
  virtual bool seekable() const = 0;
  virtual bool next_record(DumpRecord& record) = 0;
  virtual bool next_rows(RowBlock& block) = 0;
  // Seekable sources only.
  virtual bool find_record(const std::string& id, DumpRecord& record) = 0;
  virtual uint64_t n_records() = 0;
  virtual std::unique_ptr<RecordSource> reopen() = 0;
};

struct OpenOptions {
  int threads = 0;  // 0: all
  bool allow_mixed = false;
};
// Error{usage} where both are "-".
struct SourcePair {
  std::unique_ptr<RecordSource> reference;
  std::unique_ptr<RecordSource> candidate;
};
SourcePair open_dumps(const std::string& reference, const std::string& candidate, const OpenOptions& options);

struct RowPair {
  RowView reference;
  RowView candidate;
  uint32_t record = 0;  // into RowPairs::records
  uint32_t position = 0;
};

// Some pairs, in order, with what they point to.
struct RowPairs {
  std::vector<RowPair> pairs;
  std::vector<std::string> records;
  std::vector<std::shared_ptr<const RowBlock>> blocks;
  size_t n_bytes = 0;  // of the blocks
};

class DumpPair {
 public:
  // rows = RowSelection::all() takes every position that either dump holds.
  DumpPair(SourcePair sources, const RowSelection& rows);
  ~DumpPair();

  const DumpHeader& reference() const { return sources_.reference->header(); }
  const DumpHeader& candidate() const { return sources_.candidate->header(); }
  const std::string& reference_name() const { return sources_.reference->name(); }
  const std::string& candidate_name() const { return sources_.candidate->name(); }

  // About a megabyte of pairs; false when both dumps have come to their ends and everything was paired.
  bool next(RowPairs& batch);

  uint64_t n_records() const { return n_records_; }  // paired so far
  uint64_t n_rows() const { return n_rows_; }        // selected so far

 private:
  class Cursor;
  bool next_record();
  bool pair_records();
  bool pair_by_id();
  void start_lookup();
  void check_pair();
  void select_rows();
  void add_pair(RowPairs& batch);
  void check_end();
  void check_looked_up();
  [[noreturn]] void fail_missing(const RecordSource& lacking, const RecordSource& holding,
                                 const std::string& id);
  [[noreturn]] void fail_row(uint32_t position, bool in_reference, bool in_candidate);

  SourcePair sources_;
  RowSelection rows_;
  std::unique_ptr<Cursor> reference_rows_;
  std::unique_ptr<Cursor> candidate_rows_;
  DumpRecord reference_record_;
  DumpRecord candidate_record_;
  IdSet seen_;            // by_id_: the streamed ids since then
  uint64_t in_step_ = 0;  // records paired before that
  bool by_id_ = false;    // one side streams, the other is looked up
  bool streams_reference_ = true;
  bool pending_ = false;  // by_id_: the streamed side's record was read already
  bool ended_ = false;
  size_t reference_row_ = 0;  // into the records' positions: the next pair
  size_t candidate_row_ = 0;
  size_t rows_left_ = 0;
  uint64_t n_records_ = 0;
  uint64_t n_rows_ = 0;
};

}  // namespace logitgate
