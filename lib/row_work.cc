// The parallel loop over pairs of rows; see row_work.h.
// Contract: what is in flight is bounded by the bytes of the blocks it keeps alive.
#include "lib/row_work.h"

#include <algorithm>
#include <thread>

#include "lib/ordered_map.h"

namespace logitgate {

void measure_pairs(DumpPair& dumps, const MeasureOptions& options, int threads,
                   const std::function<bool(const RowKey&, const RowStats&)>& on_row) {
  constexpr size_t kMegabyte = size_t{1} << 20;
  if (threads <= 0) threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const size_t bound = 32 * kMegabyte + 8 * kMegabyte * static_cast<size_t>(threads);
  OrderedMap<RowPairs, std::vector<RowStats>>::run(
      threads, bound, [&dumps](RowPairs& batch) { return dumps.next(batch); },
      [](const RowPairs& batch) { return batch.n_bytes; },
      [&options](const RowPairs& batch) {
        std::vector<RowStats> stats;
        stats.reserve(batch.pairs.size());
        for (const RowPair& pair : batch.pairs) {
          stats.push_back(measure_row(pair.reference, pair.candidate, options));
        }
        return stats;
      },
      [&on_row](const RowPairs& batch, std::vector<RowStats>& stats) {
        RowKey key;
        for (size_t i = 0; i < stats.size(); ++i) {
          const RowPair& pair = batch.pairs[i];
          if (i == 0 || pair.record != batch.pairs[i - 1].record) key.record = batch.records[pair.record];
          key.position = pair.position;
          if (!on_row(key, stats[i])) return false;
        }
        return true;
      });
}

}  // namespace logitgate
