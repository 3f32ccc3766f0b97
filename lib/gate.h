// The gate: is what differs between two dumps rounding, or a defect?
// Contract: rows are classified by the first condition that holds, in this order: a logit that is NaN or infinite
// (unless both rows hold the same infinities and that is allowed): structured, non-finite; max_diff above the ceiling:
// structured, drift; the same argmax: match; the reference's margin within the bound: near-tie-flip; otherwise:
// structured, wide-flip. Every bound is tested as !(value <= bound), so that NaN fails. The verdict of many rows is the
// worst of them. A top-k row that does not hold what decides is Error{incomparable}, never a match.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/dump_pair.h"
#include "lib/expected_drift.h"
#include "lib/metrics.h"

namespace logitgate {

enum class RowClass { match, near_tie_flip, structured };  // by rising severity
enum class Reason { none, wide_flip, drift, non_finite };
std::string_view to_string(RowClass row_class);  // "match", "near-tie-flip", "structured"
std::string_view to_string(Reason reason);       // "", "wide-flip", "drift", "non-finite"

// A bound and where it came from: "--max-diff", "LOGITGATE_MAX_DIFF", "default".
struct Bound {
  double value = 0;
  std::string source = "default";
};

constexpr double kDefaultMaxDiff = 8.0;
constexpr double kDefaultMargin = 1.0;

struct GateBounds {
  Bound max_diff{kDefaultMaxDiff};
  bool automatic = false;  // the ceiling is the expected drift's, row by row
  Bound margin{kDefaultMargin};
  std::optional<double> max_kl;    // of any row
  std::optional<double> min_top1;  // share of rows whose argmax agrees
};

// The flags as given on the command line; absent ones fall back to the environment, then to the default.
struct BoundTexts {
  std::optional<std::string> max_diff, margin, max_kl, min_top1;
};
using Environment = std::function<const char*(const char* name)>;  // like getenv
// Flag beats LOGITGATE_MAX_DIFF and LOGITGATE_MARGIN, they beat MEMRA_PRIME_GATE_MAXDIFF and MEMRA_PRIME_GATE_MARGIN. The
// one that counts must be a finite number >= 0 ("auto" too for --max-diff and LOGITGATE_MAX_DIFF), else Error{usage}
// that names it.
GateBounds resolve_bounds(const BoundTexts& texts, const Environment& environment);

struct RowVerdict {
  RowClass row_class = RowClass::structured;
  Reason reason = Reason::none;
};
RowVerdict classify(const RowStats& row, double max_diff, double margin, bool allow_inf);

struct GateRow {
  RowKey key;
  RowVerdict verdict;
  double max_diff = 0;
  uint32_t max_token = 0;
  double ceiling = 0;
  double expected = 0;  // drift
  double kld = 0;
  double coverage = 1;
  uint32_t reference_argmax = 0, candidate_argmax = 0;
  double reference_margin = 0, candidate_margin = 0;
  uint64_t order = 0;  // of the row in the run
};
// True where a is worse than b: severity, reason, max_diff, then the earlier row.
bool is_worse(const GateRow& a, const GateRow& b);

// The worst n of many rows.
class WorstRows {
 public:
  explicit WorstRows(size_t capacity) : capacity_(capacity) {}
  void add(const GateRow& row);
  std::vector<GateRow> sorted() const;  // worst first
  size_t size() const { return heap_.size(); }

 private:
  size_t capacity_;
  std::vector<GateRow> heap_;  // the least bad on top
};

struct GateOptions {
  GateBounds bounds;
  bool strict = false;
  bool allow_inf = false;
  bool fail_fast = false;
  int threads = 0;                             // 0: all
  std::function<void(const GateRow&)> on_row;  // every row, in order
  std::function<void(uint64_t records, uint64_t rows)> on_progress;
};

struct GateResult {
  static constexpr size_t kMaxListed = 10'000;
  static constexpr size_t kMaxMatches = 100;

  bool pass = false;
  RowClass verdict = RowClass::match;
  uint64_t counts[3] = {0, 0, 0};  // by RowClass
  GateBounds bounds;
  double least_ceiling = 0, most_ceiling = 0;  // they differ for an automatic ceiling
  bool strict = false;
  bool allow_inf = false;
  bool stopped_early = false;  // --fail-fast
  uint64_t records = 0;
  uint64_t rows_compared = 0;
  uint64_t rows_expected = 0;
  double max_diff = 0;  // of all rows; NaN or infinite where a row is
  RowKey max_diff_at;
  double drift_over_expected = 0;  // the largest of all rows
  double expected_drift = 0;       // of the row it is from
  RowKey drift_at;
  std::string assumption;  // behind the expected drift
  double max_kl = 0;
  double top1_agreement = 0;
  double min_coverage = 1;  // of the reference's probability, where top-k rows are involved
  bool topk = false;
  std::vector<std::string> violations;  // "max_kl", "min_top1"
  DumpHeader reference, candidate;
  std::string reference_name, candidate_name;
  WorstRows failing{kMaxListed};
  WorstRows matches{kMaxMatches};
};

// Judges every pair; reads both dumps to their ends unless fail_fast stops at the first structured row.
GateResult run_gate(DumpPair& dumps, const GateOptions& options);

}  // namespace logitgate
