// The comparison of two dumps; see compare.h.
// Contract: rows are added in their order, so every sum is that of one thread.
#include "lib/compare.h"

#include <algorithm>

#include "lib/row_work.h"

namespace logitgate {
namespace {

bool differs_more(const ComparedRow& a, const ComparedRow& b) {
  if (a.stats.finite != b.stats.finite) return !a.stats.finite;
  return a.stats.finite && a.stats.max_abs > b.stats.max_abs;
}

// Keeps `worst` sorted; an earlier row stays before a later one that is as bad.
void note_worst(std::vector<ComparedRow>& worst, const RowKey& key, const RowStats& stats) {
  if (stats.bit_identical) return;
  ComparedRow row{key, stats};
  if (worst.size() == CompareResult::kMaxWorst) {
    if (!differs_more(row, worst.back())) return;
    worst.pop_back();
  }
  worst.insert(std::upper_bound(worst.begin(), worst.end(), row, differs_more), std::move(row));
}

}  // namespace

void PositionProfile::widen() {
  for (size_t i = 0; i < kBins / 2; ++i) {
    Bin merged = bins_[2 * i];
    const Bin& other = bins_[2 * i + 1];
    merged.rows += other.rows;
    merged.non_finite += other.non_finite;
    merged.max_abs = std::max(merged.max_abs, other.max_abs);
    merged.sum_kld += other.sum_kld;
    merged.max_kld = std::max(merged.max_kld, other.max_kld);
    bins_[i] = merged;
  }
  std::fill(bins_.begin() + kBins / 2, bins_.end(), Bin());
  width_ *= 2;
  used_ = (used_ + 1) / 2;
}

void PositionProfile::add(uint32_t position, const RowStats& row) {
  while (position / width_ >= kBins) widen();
  const size_t at = static_cast<size_t>(position / width_);
  used_ = std::max(used_, at + 1);
  Bin& bin = bins_[at];
  if (!row.finite) {
    ++bin.non_finite;
    return;
  }
  ++bin.rows;
  bin.max_abs = std::max(bin.max_abs, row.max_abs);
  bin.sum_kld += row.kld;
  bin.max_kld = std::max(bin.max_kld, row.kld);
}

CompareResult run_compare(DumpPair& dumps, const CompareOptions& options) {
  CompareResult result;
  MeasureOptions measure;
  measure.log_probs = dumps.reference().log_probs || dumps.candidate().log_probs;
  measure_pairs(dumps, measure, options.threads, [&](const RowKey& key, const RowStats& stats) {
    result.totals.add(key, stats);
    result.profile.add(key.position, stats);
    note_worst(result.worst, key, stats);
    if (options.on_row) options.on_row(key, stats);
    if (options.on_progress) options.on_progress(dumps.n_records(), result.totals.rows);
    return true;
  });
  result.records = dumps.n_records();
  result.rows_expected = dumps.n_rows();
  result.reference = dumps.reference();
  result.candidate = dumps.candidate();
  result.reference_name = dumps.reference_name();
  result.candidate_name = dumps.candidate_name();
  return result;
}

}  // namespace logitgate
