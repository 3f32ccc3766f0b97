// What is measured about two rows of logits, and what many rows add up to.
// Contract: measure_row() depends on the two rows alone. Finiteness is decided before anything is compared: where a
// row holds a NaN or an infinity, `finite` is false and no other field may make the pair look alike. Totals are sums in
// the order in which rows are added. A metric of the summary is one record in summary_metrics(), a metric of a row one
// in row_metrics(): tables, JSON, CSV and HTML follow.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/row_kernels.h"

namespace logitgate {

// One position's logits as a dump holds them: n_vocab floats or doubles, or the k largest with their ids.
struct RowView {
  const float* f32 = nullptr;     // [n_vocab]
  const double* f64 = nullptr;    // [n_vocab]
  const uint32_t* ids = nullptr;  // [k]
  const float* values = nullptr;  // [k]
  uint32_t k = 0;
  double log_sum_exp = 0;  // of the whole vocabulary, beside ids and values
  uint32_t n_vocab = 0;

  bool is_topk() const { return ids != nullptr; }
};

struct MeasureOptions {
  bool kld = true;         // the KL divergence costs three exponentials a logit
  bool log_probs = false;  // normalise both rows first
};

struct RowStats {
  bool bit_identical = false;  // as stored: NaN payloads count, and -0 is not 0
  bool finite = false;         // every logit of both rows
  bool same_infinities =
      false;  // not finite, but no NaN, and both rows hold the same infinities in the same places
  // False where rows of top-k dumps leave open what the gate asks: an argmax that the other side does not hold.
  bool decided = true;
  bool margin_known = true;  // false for a reference of topk:1
  Top2 reference;            // NaN is passed over
  Top2 candidate;
  double max_abs = 0;  // NaN where a NaN is involved, infinite where an infinity stands against anything else
  uint32_t max_token = 0;
  double sum_abs = 0;
  double sum_sq = 0;
  double sum_ref_sq = 0;
  uint64_t n_compared = 0;   // logits in the sums: n_vocab, or the ids that both rows hold
  double kld = 0;            // NaN where not finite; a lower bound for top-k rows
  double coverage = 1;       // the reference's probability on the ids compared
  double half_range = 0;     // of the reference: (max - min) / 2; top-k: max - the k-th
  double max_magnitude = 0;  // max |R_i|

  bool same_argmax() const { return reference.first == candidate.first; }
};

// Rows of one n_vocab. Error{corrupt} where a top-k row names an id outside the vocabulary.
RowStats measure_row(const RowView& reference, const RowView& candidate, const MeasureOptions& options);

// Quantiles of non-negative numbers: exact (nearest rank) up to kExact values, then from a histogram whose bins
// are 1/128 of a power of two wide. Its memory is allocated at once and does not grow.
class Quantiles {
 public:
  static constexpr size_t kExact = 1'000'000;
  explicit Quantiles(size_t exact = kExact);
  void add(double value);  // finite, >= 0
  // The smallest value that at least the share q of all values does not exceed; NaN where there are none.
  double quantile(double q) const;
  // Bound of a quantile's relative error: 0 while exact.
  double relative_error() const;

 private:
  void count(double value);
  size_t exact_;
  size_t n_ = 0;
  mutable std::vector<double> values_;
  std::vector<uint64_t> bins_;
};

struct RowKey {
  std::string record;
  uint32_t position = 0;
};

// What compare reports of many rows. Rows that are not finite are counted and left out of every other figure.
class Totals {
 public:
  Totals();
  void add(const RowKey& key, const RowStats& row);

  uint64_t rows = 0;
  uint64_t non_finite_rows = 0;
  uint64_t bit_identical_rows = 0;
  uint64_t flips = 0;
  uint64_t n_logits = 0;
  double max_abs = 0;
  RowKey max_at;
  uint32_t max_token = 0;
  RowKey first_non_finite;
  double sum_abs = 0;
  double sum_sq = 0;
  double sum_ref_sq = 0;
  double sum_kld = 0;
  double max_kld = 0;
  double sum_coverage = 0;
  double min_coverage = 1;
  Quantiles klds;

  uint64_t finite_rows() const { return rows - non_finite_rows; }
};

struct SummaryMetric {
  std::string_view key;    // in JSON; a dot opens an object
  std::string_view label;  // in tables
  bool count;              // a whole number
  double unremarkable;     // the value at which tables leave it out; NaN: never
  double (*value)(const Totals&);
};
std::span<const SummaryMetric> summary_metrics();

struct RowMetric {
  std::string_view key;  // CSV column
  bool count;
  double (*value)(const RowStats&);
};
std::span<const RowMetric> row_metrics();

// The shortest text that reads back as x; "NaN", "Infinity", "-Infinity".
std::string number_text(double x);

}  // namespace logitgate
