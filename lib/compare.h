// Measures how two dumps differ: every selected row pair, summed up.
// Contract: nothing here judges; the one verdict is whether every row is bit-identical. Memory does not grow with the
// number of rows: quantiles, the profile by position and the list of worst rows are all bounded.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/dump_pair.h"
#include "lib/metrics.h"

namespace logitgate {

// Differences and divergence by position, in at most kBins bins whose width doubles as positions grow.
class PositionProfile {
 public:
  static constexpr size_t kBins = 256;
  struct Bin {
    uint64_t rows = 0;  // finite ones
    uint64_t non_finite = 0;
    double max_abs = 0;
    double sum_kld = 0;
    double max_kld = 0;
  };
  void add(uint32_t position, const RowStats& row);
  uint64_t width() const { return width_; }  // positions a bin
  size_t n_bins() const { return used_; }    // up to the last with a row
  const Bin& bin(size_t i) const { return bins_[i]; }

 private:
  void widen();
  std::array<Bin, kBins> bins_{};
  uint64_t width_ = 1;
  size_t used_ = 0;
};

struct ComparedRow {
  RowKey key;
  RowStats stats;
};

struct CompareOptions {
  int threads = 0;                                             // 0: all
  std::function<void(const RowKey&, const RowStats&)> on_row;  // every row, in order
  std::function<void(uint64_t records, uint64_t rows)> on_progress;
};

struct CompareResult {
  static constexpr size_t kMaxWorst = 20;

  Totals totals;
  PositionProfile profile;
  std::vector<ComparedRow> worst;  // by max |diff|, not finite first; rows that differ
  uint64_t records = 0;
  uint64_t rows_expected = 0;
  DumpHeader reference, candidate;
  std::string reference_name, candidate_name;

  bool identical() const { return totals.bit_identical_rows == totals.rows; }
};

CompareResult run_compare(DumpPair& dumps, const CompareOptions& options);

}  // namespace logitgate
