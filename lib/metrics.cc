// Adds up what was measured: totals, quantiles and the tables of metrics; see metrics.h.
// Contract: a metric is one record in a table below.
#include "lib/metrics.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>

namespace logitgate {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double ratio(double sum, double n) { return n > 0 ? sum / n : kNaN; }
double rows_of(const Totals& t) { return static_cast<double>(t.finite_rows()); }
double logits_of(const Totals& t) { return static_cast<double>(t.n_logits); }
// A figure of finite rows alone says nothing where there are none.
double if_any(const Totals& t, double value) { return t.finite_rows() > 0 ? value : kNaN; }

double nmse(const Totals& t) {
  if (t.sum_sq == 0) return if_any(t, 0);
  return t.sum_ref_sq > 0 ? t.sum_sq / t.sum_ref_sq : kInfinity;
}

constexpr SummaryMetric kSummaryMetrics[] = {
    {"max_abs_diff", "max |diff|", false, kNaN, [](const Totals& t) { return if_any(t, t.max_abs); }},
    {"mean_abs_diff", "mean |diff|", false, kNaN,
     [](const Totals& t) { return ratio(t.sum_abs, logits_of(t)); }},
    {"rms_diff", "rms diff", false, kNaN,
     [](const Totals& t) { return std::sqrt(ratio(t.sum_sq, logits_of(t))); }},
    {"nmse", "NMSE", false, kNaN, nmse},
    {"kld.mean", "KLD mean", false, kNaN, [](const Totals& t) { return ratio(t.sum_kld, rows_of(t)); }},
    {"kld.p50", "KLD median", false, kNaN, [](const Totals& t) { return t.klds.quantile(0.5); }},
    {"kld.p90", "KLD 90 %", false, kNaN, [](const Totals& t) { return t.klds.quantile(0.9); }},
    {"kld.p99", "KLD 99 %", false, kNaN, [](const Totals& t) { return t.klds.quantile(0.99); }},
    {"kld.p999", "KLD 99.9 %", false, kNaN, [](const Totals& t) { return t.klds.quantile(0.999); }},
    {"kld.max", "KLD max", false, kNaN, [](const Totals& t) { return if_any(t, t.max_kld); }},
    {"kld.quantile_relative_error", "quantiles' relative error", false, 0,
     [](const Totals& t) { return t.klds.relative_error(); }},
    {"top1_agreement", "same argmax", false, kNaN,
     [](const Totals& t) { return ratio(rows_of(t) - static_cast<double>(t.flips), rows_of(t)); }},
    {"flips", "argmax flips", true, kNaN, [](const Totals& t) { return static_cast<double>(t.flips); }},
    {"bit_identical_rows", "bit-identical rows", true, kNaN,
     [](const Totals& t) { return static_cast<double>(t.bit_identical_rows); }},
    {"non_finite_rows", "non-finite rows", true, kNaN,
     [](const Totals& t) { return static_cast<double>(t.non_finite_rows); }},
    {"coverage.mean", "coverage mean", false, 1,
     [](const Totals& t) { return ratio(t.sum_coverage, rows_of(t)); }},
    {"coverage.min", "coverage min", false, 1, [](const Totals& t) { return if_any(t, t.min_coverage); }},
};

double per_logit(double sum, const RowStats& row) {
  return row.finite ? ratio(sum, static_cast<double>(row.n_compared)) : kNaN;
}
double token(uint32_t id) { return id == kNoToken ? kNaN : static_cast<double>(id); }

constexpr RowMetric kRowMetrics[] = {
    {"bit_identical", true, [](const RowStats& r) { return r.bit_identical ? 1.0 : 0.0; }},
    {"finite", true, [](const RowStats& r) { return r.finite ? 1.0 : 0.0; }},
    {"max_abs_diff", false, [](const RowStats& r) { return r.max_abs; }},
    {"max_abs_diff_token", true, [](const RowStats& r) { return static_cast<double>(r.max_token); }},
    {"mean_abs_diff", false, [](const RowStats& r) { return per_logit(r.sum_abs, r); }},
    {"rms_diff", false, [](const RowStats& r) { return std::sqrt(per_logit(r.sum_sq, r)); }},
    {"kld", false, [](const RowStats& r) { return r.kld; }},
    {"flip", true, [](const RowStats& r) { return r.same_argmax() ? 0.0 : 1.0; }},
    {"reference_argmax", true, [](const RowStats& r) { return token(r.reference.first); }},
    {"reference_margin", false, [](const RowStats& r) { return r.reference.margin(); }},
    {"candidate_argmax", true, [](const RowStats& r) { return token(r.candidate.first); }},
    {"candidate_margin", false, [](const RowStats& r) { return r.candidate.margin(); }},
    {"coverage", false, [](const RowStats& r) { return r.coverage; }},
};

// Histogram bins: the exponent from 2^-128 to 2^127 and seven bits of the mantissa; bin 0 takes all below.
constexpr int kMantissaBits = 7;
constexpr int kLowExponent = -128;
constexpr size_t kBins = 256u << kMantissaBits;

}  // namespace

Quantiles::Quantiles(size_t exact) : exact_(exact), values_(exact), bins_(kBins) {}

void Quantiles::add(double value) {
  if (n_ < exact_) {
    values_[n_] = value;
  } else {
    if (n_ == exact_) {
      for (const double earlier : values_) count(earlier);
    }
    count(value);
  }
  ++n_;
}

void Quantiles::count(double value) {
  const int64_t low = static_cast<int64_t>(1023 + kLowExponent) << kMantissaBits;
  const int64_t index = static_cast<int64_t>(std::bit_cast<uint64_t>(value) >> (52 - kMantissaBits)) - low;
  ++bins_[static_cast<size_t>(std::clamp<int64_t>(index, 0, kBins - 1))];
}

double Quantiles::quantile(double q) const {
  if (n_ == 0) return kNaN;
  const double rank = std::max(1.0, std::ceil(q * static_cast<double>(n_)));
  if (n_ <= exact_) {
    const auto at = values_.begin() + (static_cast<std::ptrdiff_t>(rank) - 1);
    std::nth_element(values_.begin(), at, values_.begin() + static_cast<std::ptrdiff_t>(n_));
    return *at;
  }
  double seen = 0;
  size_t bin = 0;
  for (; bin + 1 < kBins; ++bin) {
    seen += static_cast<double>(bins_[bin]);
    if (seen >= rank) break;
  }
  if (bin == 0) return 0;
  const double mantissa =
      1 + (static_cast<double>(bin % (1u << kMantissaBits)) + 0.5) / (1u << kMantissaBits);
  return std::ldexp(mantissa, kLowExponent + static_cast<int>(bin >> kMantissaBits));
}

double Quantiles::relative_error() const { return n_ <= exact_ ? 0 : 0.5 / (1u << kMantissaBits); }

Totals::Totals() = default;

void Totals::add(const RowKey& key, const RowStats& row) {
  ++rows;
  bit_identical_rows += row.bit_identical ? 1 : 0;
  if (!row.finite) {
    if (non_finite_rows++ == 0) first_non_finite = key;
    return;
  }
  n_logits += row.n_compared;
  flips += row.same_argmax() ? 0 : 1;
  if (finite_rows() == 1 || row.max_abs > max_abs) {
    max_abs = row.max_abs;
    max_at = key;
    max_token = row.max_token;
  }
  sum_abs += row.sum_abs;
  sum_sq += row.sum_sq;
  sum_ref_sq += row.sum_ref_sq;
  sum_kld += row.kld;
  max_kld = std::max(max_kld, row.kld);
  sum_coverage += row.coverage;
  min_coverage = std::min(min_coverage, row.coverage);
  klds.add(row.kld);
}

std::span<const SummaryMetric> summary_metrics() { return kSummaryMetrics; }
std::span<const RowMetric> row_metrics() { return kRowMetrics; }

std::string number_text(double x) {
  if (std::isnan(x)) return "NaN";
  if (std::isinf(x)) return x > 0 ? "Infinity" : "-Infinity";
  char text[32];
  const auto [end, error] = std::to_chars(std::begin(text), std::end(text), x);
  return error == std::errc() ? std::string(text, end) : std::string();
}

}  // namespace logitgate
