// A dump held in memory, to feed lib/dump_pair.h with rows.
// Contract: behaves as a DumpReader does: next_record() skips what is left, find_record() makes a record current.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/dump_pair.h"
#include "lib/error.h"

namespace logitgate {

struct MemoryDump {
  std::string name = "dump.zst";
  DumpHeader header;
  bool seekable = true;
  std::vector<DumpRecord> records;
  std::vector<std::vector<RowBlock>> blocks;  // of each record

  explicit MemoryDump(std::string dump_name = "dump.zst", uint32_t n_vocab = 4) : name(std::move(dump_name)) {
    header.n_vocab = n_vocab;
    header.precision = "f32";
    header.command = "prefill";
  }

  // A record of n_tokens whose rows, one a position, lie in blocks of `rows_per_block`.
  MemoryDump& add(const std::string& id, uint32_t n_tokens, const std::vector<uint32_t>& positions,
                  const std::vector<std::vector<float>>& rows, size_t rows_per_block = 2) {
    DumpRecord record;
    record.id = id;
    record.index = records.size();
    record.n_tokens = n_tokens;
    record.tokens_digest[0] = static_cast<uint8_t>(n_tokens);
    record.positions = positions;
    std::vector<RowBlock> parts;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i % rows_per_block == 0) {
        parts.emplace_back();
        parts.back().first_row = static_cast<uint32_t>(i);
      }
      ++parts.back().n_rows;
      parts.back().f32.insert(parts.back().f32.end(), rows[i].begin(), rows[i].end());
    }
    records.push_back(record);
    blocks.push_back(std::move(parts));
    return *this;
  }
  // One token, one row.
  MemoryDump& add(const std::string& id, const std::vector<float>& row) { return add(id, 1, {0}, {row}); }
};

class MemorySource : public RecordSource {
 public:
  explicit MemorySource(std::shared_ptr<const MemoryDump> dump) : dump_(std::move(dump)) {}
  const std::string& name() const override { return dump_->name; }
  const DumpHeader& header() const override { return dump_->header; }
  bool seekable() const override { return dump_->seekable; }
  bool next_record(DumpRecord& record) override {
    if (next_ >= dump_->records.size()) return false;
    make_current(next_, record);
    if (!ids_.insert(record.id))
      fail(ErrorCode::incomparable, "{}: record '{}' comes twice", name(), record.id);
    return true;
  }
  bool next_rows(RowBlock& block) override {
    if (block_ >= dump_->blocks[next_ - 1].size()) return false;
    block = dump_->blocks[next_ - 1][block_++];
    return true;
  }
  bool find_record(const std::string& id, DumpRecord& record) override {
    if (!dump_->seekable) fail(ErrorCode::io, "{}: not seekable", name());
    for (size_t i = 0; i < dump_->records.size(); ++i) {
      if (dump_->records[i].id != id) continue;
      make_current(i, record);
      return true;
    }
    return false;
  }
  uint64_t n_records() override { return dump_->records.size(); }
  std::unique_ptr<RecordSource> reopen() override { return std::make_unique<MemorySource>(dump_); }

 private:
  void make_current(size_t i, DumpRecord& record) {
    record = dump_->records[i];
    next_ = i + 1;
    block_ = 0;
  }
  std::shared_ptr<const MemoryDump> dump_;
  IdSet ids_;
  size_t next_ = 0;
  size_t block_ = 0;
};

inline SourcePair sources(const MemoryDump& reference, const MemoryDump& candidate) {
  return {std::make_unique<MemorySource>(std::make_shared<const MemoryDump>(reference)),
          std::make_unique<MemorySource>(std::make_shared<const MemoryDump>(candidate))};
}

}  // namespace logitgate
