// The prefill and decode loops: which tokens make a pass, and which record each row of logits belongs to.
// Contract: in runner.h.
#include "lib/runner.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "lib/error.h"

namespace logitgate {
namespace {

// A record on its way through the passes.
struct Flight {
  TokenRecord record;
  std::vector<uint32_t> positions;  // rows kept, rising
  uint64_t ticket = 0;
  int32_t slot = 0;
  int32_t next_position = 0;  // first position not yet computed
  size_t next_row = 0;        // first of `positions` not yet computed

  int32_t n_tokens() const { return static_cast<int32_t>(record.tokens.size()); }
  bool done() const { return next_position == n_tokens(); }
};

// Hands the rows of a pass to the records they belong to.
class RowRouter : public LogitSink {
 public:
  explicit RowRouter(DumpWriter& writer) : writer_(writer) {}
  void clear() { runs_.clear(); }
  // The next n_rows rows of the pass belong to that record.
  void expect(uint64_t ticket, uint32_t n_rows) { runs_.push_back({ticket, n_rows}); }

  void consume(const LogitChunk& chunk) override {
    int64_t row = 0;
    while (row < chunk.n_rows) {
      if (runs_.empty()) throw std::logic_error("more logits than rows were asked for");
      Run& run = runs_.front();
      const uint32_t n = static_cast<uint32_t>(std::min<int64_t>(run.n_rows, chunk.n_rows - row));
      const size_t offset = static_cast<size_t>(row * chunk.n_vocab),
                   length = static_cast<size_t>(n * chunk.n_vocab);
      if (chunk.f64.empty())
        writer_.add_rows(run.ticket, chunk.f32.subspan(offset, length), n);
      else
        writer_.add_rows(run.ticket, chunk.f64.subspan(offset, length), n);
      row += n;
      run.n_rows -= n;
      if (run.n_rows == 0) runs_.pop_front();
    }
  }

 private:
  struct Run {
    uint64_t ticket;
    uint32_t n_rows;
  };
  DumpWriter& writer_;
  std::deque<Run> runs_;
};

// What both loops share: admitting records, running passes, counting.
class Loop {
 public:
  Loop(Architecture& model, Backend& backend, TokenReader& reader, DumpWriter& writer,
       const RunOptions& options)
      : model_(model),
        cache_(backend.make_kv_cache(model.kv_shape())),
        reader_(reader),
        writer_(writer),
        options_(options),
        router_(writer) {}

  // The next record of this shard that is not in the dump yet, with a slot of the cache; nothing at the end.
  std::optional<Flight> admit() {
    Flight flight;
    while (reader_.next(flight.record)) {
      if (flight.record.index % options_.shard_count != options_.shard_index) continue;
      flight.positions = options_.rows.select(static_cast<uint32_t>(flight.n_tokens()));
      DumpRecord record;
      record.id = flight.record.id;
      record.index = flight.record.index;
      record.n_tokens = static_cast<uint32_t>(flight.n_tokens());
      record.tokens_digest = digest_tokens(flight.record.tokens);
      record.positions = flight.positions;
      if (n_kept_ < writer_.resumed_records()) {
        writer_.check_resumed(n_kept_++, record);
        continue;
      }
      flight.ticket = writer_.begin_record(record);
      flight.slot = take_slot();
      cache_->reserve(flight.slot, flight.n_tokens());
      longest_ = std::max(longest_, flight.n_tokens());
      return flight;
    }
    if (n_kept_ < writer_.resumed_records())
      fail(ErrorCode::incomparable,
           "--resume: the interrupted output holds {} records, the input only {} of them",
           writer_.resumed_records(), n_kept_);
    return std::nullopt;
  }

  // Adds the flight's next n tokens to the batch.
  void pack(Flight& flight, int32_t n) {
    const int32_t first = batch_.n_tokens();
    batch_.pieces.push_back({flight.slot, first, n, flight.next_position});
    const auto begin = flight.record.tokens.begin() + flight.next_position;
    batch_.tokens.insert(batch_.tokens.end(), begin, begin + n);
    const int32_t end = flight.next_position + n;
    uint32_t n_rows = 0;
    for (; flight.next_row < flight.positions.size(); ++flight.next_row, ++n_rows) {
      const int32_t position = static_cast<int32_t>(flight.positions[flight.next_row]);
      if (position >= end) break;
      rows_.push_back(first + position - flight.next_position);
    }
    if (n_rows > 0) router_.expect(flight.ticket, n_rows);
    flight.next_position = end;
  }

  void run_pass(Phase phase, int32_t max_tokens) {
    const auto start = std::chrono::steady_clock::now();
    batch_.phase = phase;
    // Positions grow by doubling, so that tables are made a few times only.
    const int32_t known = std::max(longest_, options_.longest_record);
    const int32_t n_positions = std::min<int32_t>(
        model_.config().n_ctx, static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(known))));
    model_.reserve(max_tokens, n_positions);
    model_.forward(batch_, *cache_, rows_, router_);
    totals_.tokens += batch_.tokens.size();
    totals_.rows += rows_.size();
    batch_.tokens.clear();
    batch_.pieces.clear();
    rows_.clear();
    router_.clear();
    totals_.compute_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void land(const Flight& flight) {
    cache_->release(flight.slot);
    free_slots_.push_back(flight.slot);
    ++totals_.records;
  }

  void report() const {
    if (options_.progress) options_.progress(totals_.records, totals_.tokens);
  }
  bool batch_empty() const { return batch_.tokens.empty(); }
  int32_t batch_tokens() const { return batch_.n_tokens(); }
  const RunTotals& totals() const { return totals_; }
  size_t kv_bytes_per_position() const { return cache_->bytes_per_position(); }

 private:
  int32_t take_slot() {
    if (free_slots_.empty()) return n_slots_++;
    const int32_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  Architecture& model_;
  std::unique_ptr<KvCache> cache_;
  TokenReader& reader_;
  DumpWriter& writer_;
  const RunOptions& options_;
  RowRouter router_;
  TokenBatch batch_;
  std::vector<int32_t> rows_;
  std::vector<int32_t> free_slots_;
  int32_t n_slots_ = 0;
  int32_t longest_ = 1;
  uint64_t n_kept_ = 0;  // records met so far that a resumed dump already holds
  RunTotals totals_;
};

// Half of the free memory may go to what grows with the choice; one unit always fits or fails where it is allocated.
int32_t choose(size_t free_bytes, size_t bytes_per_unit, int32_t preferred) {
  const size_t fits = free_bytes / 2 / std::max<size_t>(bytes_per_unit, 1);
  return static_cast<int32_t>(std::clamp<size_t>(fits, 1, static_cast<size_t>(preferred)));
}

}  // namespace

RunTotals run_prefill(Architecture& model, Backend& backend, TokenReader& reader, DumpWriter& writer,
                      const RunOptions& options) {
  Loop loop(model, backend, reader, writer, options);
  const int32_t batch_tokens =
      options.batch_tokens > 0
          ? options.batch_tokens
          : choose(backend.free_memory(), model.bytes_per_token() + loop.kv_bytes_per_position(),
                   backend.preferred_batch_tokens());
  std::deque<Flight> flights;  // records with tokens in the batch; the last one may go on in the next batch
  bool more = true;
  while (more || !flights.empty()) {
    while (loop.batch_tokens() < batch_tokens) {
      if (flights.empty() || flights.back().done()) {
        std::optional<Flight> next = more ? loop.admit() : std::nullopt;
        if (!next) {
          more = false;
          break;
        }
        flights.push_back(std::move(*next));
      }
      Flight& flight = flights.back();
      loop.pack(flight,
                std::min(batch_tokens - loop.batch_tokens(), flight.n_tokens() - flight.next_position));
    }
    if (!loop.batch_empty()) loop.run_pass(Phase::prefill, batch_tokens);
    while (!flights.empty() && flights.front().done()) {
      loop.land(flights.front());
      flights.pop_front();
    }
    loop.report();
  }
  return loop.totals();
}

RunTotals run_decode_prime(Architecture& model, Backend& backend, TokenReader& reader, DumpWriter& writer,
                           const RunOptions& options) {
  Loop loop(model, backend, reader, writer, options);
  const size_t positions =
      static_cast<size_t>(options.longest_record > 0 ? options.longest_record : model.config().n_ctx);
  const int32_t n_lanes =
      options.lanes > 0
          ? options.lanes
          : choose(backend.free_memory(), model.bytes_per_token() + positions * loop.kv_bytes_per_position(),
                   backend.preferred_lanes());
  std::vector<Flight> lanes;
  bool more = true;
  while (true) {
    while (more && static_cast<int32_t>(lanes.size()) < n_lanes) {
      std::optional<Flight> next = loop.admit();
      if (next)
        lanes.push_back(std::move(*next));
      else
        more = false;
    }
    if (lanes.empty()) break;
    for (Flight& flight : lanes) loop.pack(flight, 1);
    loop.run_pass(Phase::decode, n_lanes);
    std::erase_if(lanes, [&](const Flight& flight) {
      if (!flight.done()) return false;
      loop.land(flight);
      return true;
    });
    loop.report();
  }
  return loop.totals();
}

}  // namespace logitgate
