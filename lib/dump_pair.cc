// Pairs the records and rows of two dumps; see dump_pair.h.
// Contract: as long as both sides have the same order they are streamed in step; at the first difference one side, which
// must be seekable, is looked up by id from then on.
#include "lib/dump_pair.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "lib/error.h"

namespace logitgate {
namespace {

constexpr size_t kBatchRowBytes = size_t{1} << 20;     // rows handed out at once
constexpr size_t kBatchBlockBytes = size_t{16} << 20;  // blocks kept alive by them

// Blocks go back here when the last pair that points into them is done, so that their memory serves again.
class BlockPool : public std::enable_shared_from_this<BlockPool> {
 public:
  std::shared_ptr<RowBlock> get() {
    std::unique_ptr<RowBlock> block;
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        block = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (!block) block = std::make_unique<RowBlock>();
    return {block.release(), [pool = shared_from_this()](RowBlock* used) { pool->put(used); }};
  }

 private:
  static constexpr size_t kMaxFree = 4;
  void put(RowBlock* used) {
    std::unique_ptr<RowBlock> block(used);
    const std::lock_guard lock(mutex_);
    if (free_.size() < kMaxFree) free_.push_back(std::move(block));
  }
  std::mutex mutex_;
  std::vector<std::unique_ptr<RowBlock>> free_;
};

size_t block_bytes(const RowBlock& block) {
  return block.f32.size() * sizeof(float) + block.f64.size() * sizeof(double) +
         block.ids.size() * sizeof(uint32_t) + block.values.size() * sizeof(float) +
         block.log_sum_exp.size() * sizeof(double);
}

size_t row_bytes(const RowView& row) {
  if (row.is_topk()) return row.k * (sizeof(uint32_t) + sizeof(float));
  return row.n_vocab * (row.f32 != nullptr ? sizeof(float) : sizeof(double));
}

}  // namespace

// ---- Cursor: the rows of one side's current record ----

class DumpPair::Cursor {
 public:
  explicit Cursor(RecordSource& source) : source_(source), pool_(std::make_shared<BlockPool>()) {}

  void start_record(const DumpRecord& record) {
    record_ = &record;
    block_.reset();
    end_ = 0;
  }

  // The row of the record's positions[index]; index never falls within a record.
  RowView row(size_t index) {
    while (index >= end_) read_block();
    const size_t at = index - block_->first_row;
    const uint32_t n_vocab = source_.header().n_vocab;
    RowView view;
    view.n_vocab = n_vocab;
    if (const size_t k = source_.header().store.k; source_.header().store.type == StoreType::topk) {
      view.ids = block_->ids.data() + at * k;
      view.values = block_->values.data() + at * k;
      view.log_sum_exp = block_->log_sum_exp[at];
      view.k = source_.header().store.k;
    } else if (!block_->f64.empty()) {
      view.f64 = block_->f64.data() + at * n_vocab;
    } else {
      view.f32 = block_->f32.data() + at * n_vocab;
    }
    return view;
  }

  const std::shared_ptr<RowBlock>& block() const { return block_; }

 private:
  void read_block() {
    block_.reset();
    std::shared_ptr<RowBlock> block = pool_->get();
    if (!source_.next_rows(*block)) {
      fail(ErrorCode::corrupt, "{}: record '{}': holds fewer rows than its {} positions", source_.name(),
           record_->id, record_->positions.size());
    }
    if (block->first_row != end_ || block->n_rows == 0 || !has_all_values(*block)) {
      fail(ErrorCode::corrupt, "{}: record '{}': rows from {} on are not where the record has them",
           source_.name(), record_->id, end_);
    }
    end_ += block->n_rows;
    block_ = std::move(block);
  }

  bool has_all_values(const RowBlock& block) const {
    const size_t n = block.n_rows;
    const DumpHeader& header = source_.header();
    if (header.store.type == StoreType::topk) {
      return block.ids.size() == n * header.store.k && block.values.size() == n * header.store.k &&
             block.log_sum_exp.size() == n && header.store.k > 0;
    }
    const size_t values = block.f64.empty() ? block.f32.size() : block.f64.size();
    return values == n * header.n_vocab;
  }

  RecordSource& source_;
  std::shared_ptr<BlockPool> pool_;
  const DumpRecord* record_ = nullptr;
  std::shared_ptr<RowBlock> block_;
  size_t end_ = 0;  // rows of the record read so far
};

// ---- DumpPair ----

DumpPair::DumpPair(SourcePair sources, const RowSelection& rows)
    : sources_(std::move(sources)),
      rows_(rows),
      reference_rows_(std::make_unique<Cursor>(*sources_.reference)),
      candidate_rows_(std::make_unique<Cursor>(*sources_.candidate)) {
  if (reference().n_vocab != candidate().n_vocab || reference().n_vocab == 0) {
    fail(ErrorCode::incomparable, "{}: holds rows of {} logits, {} of {}; both dumps need the same n_vocab",
         candidate_name(), candidate().n_vocab, reference_name(), reference().n_vocab);
  }
}

DumpPair::~DumpPair() = default;

void DumpPair::fail_missing(const RecordSource& lacking, const RecordSource& holding, const std::string& id) {
  fail(ErrorCode::incomparable, "{}: record '{}' of {} is missing; both dumps must hold the same records",
       lacking.name(), id, holding.name());
}

bool DumpPair::next_record() {
  if (by_id_) return pair_by_id();
  const bool have_reference = sources_.reference->next_record(reference_record_);
  const bool have_candidate = sources_.candidate->next_record(candidate_record_);
  if (!have_reference && !have_candidate) return false;
  if (have_reference && have_candidate && reference_record_.id == candidate_record_.id) return true;
  if (!have_candidate) fail_missing(*sources_.candidate, *sources_.reference, reference_record_.id);
  if (!have_reference) fail_missing(*sources_.reference, *sources_.candidate, candidate_record_.id);
  start_lookup();
  return pair_by_id();
}

void DumpPair::start_lookup() {
  if (!sources_.reference->seekable() && !sources_.candidate->seekable()) {
    fail(ErrorCode::incomparable,
         "{}: record {} is '{}' where {} has '{}'; the order may differ only where one side is a seekable "
         "file",
         candidate_name(), n_records_, candidate_record_.id, reference_name(), reference_record_.id);
  }
  by_id_ = true;
  in_step_ = n_records_;
  pending_ = true;
  streams_reference_ = sources_.candidate->seekable();
  std::unique_ptr<RecordSource>& looked_up = streams_reference_ ? sources_.candidate : sources_.reference;
  std::unique_ptr<Cursor>& cursor = streams_reference_ ? candidate_rows_ : reference_rows_;
  looked_up = looked_up->reopen();
  cursor = std::make_unique<Cursor>(*looked_up);
}

bool DumpPair::pair_by_id() {
  RecordSource& streamed = streams_reference_ ? *sources_.reference : *sources_.candidate;
  RecordSource& looked_up = streams_reference_ ? *sources_.candidate : *sources_.reference;
  DumpRecord& record = streams_reference_ ? reference_record_ : candidate_record_;
  DumpRecord& other = streams_reference_ ? candidate_record_ : reference_record_;
  if (!pending_ && !streamed.next_record(record)) return false;
  pending_ = false;
  seen_.insert(record.id);
  if (!looked_up.find_record(record.id, other)) fail_missing(looked_up, streamed, record.id);
  return true;
}

// The streamed side has come to its end: the other must hold nothing else. The first in_step_ records are the same.
void DumpPair::check_looked_up() {
  RecordSource& looked_up = streams_reference_ ? *sources_.candidate : *sources_.reference;
  const RecordSource& streamed = streams_reference_ ? *sources_.reference : *sources_.candidate;
  if (looked_up.n_records() == n_records_) return;
  const std::unique_ptr<RecordSource> again = looked_up.reopen();
  DumpRecord record;
  for (uint64_t i = 0; again->next_record(record); ++i) {
    if (i >= in_step_ && !seen_.contains(record.id)) fail_missing(streamed, looked_up, record.id);
  }
  fail(ErrorCode::corrupt, "{}: its index counts {} records, {} has {}; ids must be unique", looked_up.name(),
       looked_up.n_records(), streamed.name(), n_records_);
}

void DumpPair::check_end() {
  if (by_id_) check_looked_up();
  if (n_records_ == 0) {
    fail(ErrorCode::incomparable, "{}: neither it nor {} holds a record; nothing was compared",
         reference_name(), candidate_name());
  }
  if (n_rows_ == 0) {
    fail(ErrorCode::incomparable, "{}: --rows {} selects no row of its {} records; nothing was compared",
         reference_name(), to_string(rows_), n_records_);
  }
}

void DumpPair::check_pair() {
  const DumpRecord& r = reference_record_;
  const DumpRecord& c = candidate_record_;
  if (r.n_tokens != c.n_tokens || r.tokens_digest != c.tokens_digest) {
    fail(ErrorCode::incomparable,
         "{}: record '{}': its {} tokens are not the {} tokens that {} has; both dumps must come from the "
         "same tokens",
         candidate_name(), r.id, c.n_tokens, r.n_tokens, reference_name());
  }
}

void DumpPair::fail_row(uint32_t position, bool in_reference, bool in_candidate) {
  const std::string& id = reference_record_.id;
  if (in_reference || in_candidate) {
    fail(ErrorCode::incomparable,
         "{}: record '{}': position {} is missing, {} has it; --rows {} needs it on both sides",
         in_reference ? candidate_name() : reference_name(), id, position,
         in_reference ? reference_name() : candidate_name(), to_string(rows_));
  }
  fail(ErrorCode::incomparable,
       "{}: record '{}': position {} is missing, in {} too; --rows {} needs it on both sides",
       reference_name(), id, position, candidate_name(), to_string(rows_));
}

// Finds the selected rows of the current records and makes sure that both sides have each of them.
void DumpPair::select_rows() {
  const auto [begin, end] = rows_.range(reference_record_.n_tokens);
  const bool need_all = rows_ != RowSelection::all();
  const std::vector<uint32_t>& r = reference_record_.positions;
  const std::vector<uint32_t>& c = candidate_record_.positions;
  const auto first = [](const std::vector<uint32_t>& positions, uint32_t bound) {
    return static_cast<size_t>(std::lower_bound(positions.begin(), positions.end(), bound) -
                               positions.begin());
  };
  reference_row_ = first(r, begin);
  candidate_row_ = first(c, begin);
  const size_t reference_end = first(r, end), candidate_end = first(c, end);
  rows_left_ = 0;
  for (uint32_t wanted = begin;; ++wanted) {
    const size_t i = reference_row_ + rows_left_, j = candidate_row_ + rows_left_;
    const uint32_t in_r = i < reference_end ? r[i] : end, in_c = j < candidate_end ? c[j] : end;
    const uint32_t position = need_all ? std::min({wanted, in_r, in_c}) : std::min(in_r, in_c);
    if (position >= end) break;
    if (in_r != position || in_c != position) fail_row(position, in_r == position, in_c == position);
    ++rows_left_;
  }
  n_rows_ += rows_left_;
}

bool DumpPair::pair_records() {
  if (!next_record()) return false;
  check_pair();
  ++n_records_;
  select_rows();
  reference_rows_->start_record(reference_record_);
  candidate_rows_->start_record(candidate_record_);
  return true;
}

void DumpPair::add_pair(RowPairs& batch) {
  RowPair pair;
  pair.position = reference_record_.positions[reference_row_];
  pair.record = static_cast<uint32_t>(batch.records.size() - 1);
  pair.reference = reference_rows_->row(reference_row_++);
  pair.candidate = candidate_rows_->row(candidate_row_++);
  --rows_left_;
  for (const Cursor* cursor : {reference_rows_.get(), candidate_rows_.get()}) {
    const auto& blocks = batch.blocks;
    const size_t recent = std::min<size_t>(2, blocks.size());
    if (std::find(blocks.end() - static_cast<std::ptrdiff_t>(recent), blocks.end(), cursor->block()) !=
        blocks.end()) {
      continue;
    }
    batch.blocks.push_back(cursor->block());
    batch.n_bytes += block_bytes(*cursor->block());
  }
  batch.pairs.push_back(pair);
}

bool DumpPair::next(RowPairs& batch) {
  batch = RowPairs();
  if (ended_) return false;
  size_t n_bytes = 0;
  if (rows_left_ > 0) batch.records.push_back(reference_record_.id);
  while (n_bytes < kBatchRowBytes && batch.n_bytes < kBatchBlockBytes) {
    if (rows_left_ == 0) {
      if (!pair_records()) {
        ended_ = true;
        check_end();
        break;
      }
      if (rows_left_ > 0) batch.records.push_back(reference_record_.id);
      continue;
    }
    add_pair(batch);
    n_bytes += row_bytes(batch.pairs.back().reference) + row_bytes(batch.pairs.back().candidate);
  }
  return !batch.pairs.empty();
}

}  // namespace logitgate
