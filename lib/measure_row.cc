// Measures a pair of rows; see metrics.h.
// Contract: rows that are finite take the vectorised passes of row_kernels.h; the others, and top-k rows, are walked one
// logit at a time.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "lib/error.h"
#include "lib/metrics.h"

namespace logitgate {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double logit(const RowView& row, size_t i) {
  return row.f32 != nullptr ? static_cast<double>(row.f32[i]) : row.f64[i];
}

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

bool identical(const RowView& a, const RowView& b) {
  const size_t n = a.n_vocab;
  if (a.is_topk() != b.is_topk()) return false;
  if (a.is_topk()) {
    return a.k == b.k && std::memcmp(a.ids, b.ids, a.k * sizeof(uint32_t)) == 0 &&
           std::memcmp(a.values, b.values, a.k * sizeof(float)) == 0 &&
           same_bits(a.log_sum_exp, b.log_sum_exp);
  }
  if (a.f32 != nullptr && b.f32 != nullptr) return std::memcmp(a.f32, b.f32, n * sizeof(float)) == 0;
  if (a.f64 != nullptr && b.f64 != nullptr) return std::memcmp(a.f64, b.f64, n * sizeof(double)) == 0;
  for (size_t i = 0; i < n; ++i) {
    if (!same_bits(logit(a, i), logit(b, i))) return false;
  }
  return true;
}

// Offers logit x of token i to the two largest; ties go to the lower id because tokens come in rising order.
void offer(Top2& top, double x, uint32_t i) {
  if (top.first == kNoToken || x > top.first_value) {
    top.second = top.first;
    top.second_value = top.first_value;
    top.first = i;
    top.first_value = x;
  } else if (top.second == kNoToken || x > top.second_value) {
    top.second = i;
    top.second_value = x;
  }
}

// Calls f(r, c) with the two rows as pointers of their own types.
template <class F>
auto with_pointers(const RowView& r, const RowView& c, const F& f) {
  if (r.f32 != nullptr) return c.f32 != nullptr ? f(r.f32, c.f32) : f(r.f32, c.f64);
  return c.f32 != nullptr ? f(r.f64, c.f32) : f(r.f64, c.f64);
}

double row_lse(const RowView& row, double max) {
  return row.f32 != nullptr ? log_sum_exp(row.f32, row.n_vocab, max) : log_sum_exp(row.f64, row.n_vocab, max);
}

void set_scale(RowStats& stats, double max, double min) {
  stats.half_range = max / 2 - min / 2;
  stats.max_magnitude = std::max(std::abs(max), std::abs(min));
}

// log(sum of exp) of a row that may hold infinities; NaN where it holds a NaN or +infinity.
double careful_lse(const RowView& row) {
  double max = -kInfinity;
  for (size_t i = 0; i < row.n_vocab; ++i) {
    const double x = logit(row, i);
    if (std::isnan(x) || x == kInfinity) return kNaN;
    max = std::max(max, x);
  }
  if (max == -kInfinity) return kNaN;
  double sum = 0;
  for (size_t i = 0; i < row.n_vocab; ++i) sum += std::exp(logit(row, i) - max);
  return max + std::log(sum);
}

// Whether r and c can be subtracted: both finite. Records in `stats` what they are otherwise.
bool both_finite(double r, double c, RowStats& stats, bool& mismatch) {
  if (std::isfinite(r) && std::isfinite(c)) return true;
  stats.finite = false;
  if (!(r == c)) mismatch = true;  // true for NaN too
  return false;
}

double careful_kld(const RowView& r, const RowView& c, double r_lse, double c_lse) {
  double sum = 0;
  for (size_t i = 0; i < r.n_vocab; ++i) {
    const double log_p = logit(r, i) - r_lse, log_q = logit(c, i) - c_lse;
    const double p = std::exp(log_p);
    sum += p > 0 ? p * exp_minus_one_minus(log_q - log_p) : std::exp(log_q);
  }
  return sum;
}

// Rows with NaN, infinities or doubles whose squares overflow.
RowStats measure_careful(const RowView& r, const RowView& c, const MeasureOptions& options) {
  RowStats stats;
  stats.bit_identical = identical(r, c);
  stats.finite = true;
  bool mismatch = false, any_nan = false;
  double min = kInfinity;
  const double r_lse = careful_lse(r), c_lse = careful_lse(c);
  const double r_shift = options.log_probs ? r_lse : 0, c_shift = options.log_probs ? c_lse : 0;
  for (uint32_t i = 0; i < r.n_vocab; ++i) {
    const double x = logit(r, i) - r_shift, y = logit(c, i) - c_shift;
    any_nan |= std::isnan(x) || std::isnan(y);
    if (!std::isnan(x)) offer(stats.reference, x, i);
    if (!std::isnan(y)) offer(stats.candidate, y, i);
    if (std::isfinite(x)) min = std::min(min, x);
    if (!both_finite(x, y, stats, mismatch)) continue;
    const double diff = std::abs(x - y);
    if (diff > stats.max_abs) {
      stats.max_abs = diff;
      stats.max_token = i;
    }
    stats.sum_abs += diff;
    stats.sum_sq += diff * diff;
    stats.sum_ref_sq += x * x;
    ++stats.n_compared;
  }
  stats.same_infinities = !stats.finite && !mismatch;
  if (mismatch) stats.max_abs = any_nan ? kNaN : kInfinity;
  if (stats.finite || stats.same_infinities) {
    if (std::isfinite(stats.reference.first_value)) set_scale(stats, stats.reference.first_value, min);
    stats.kld = options.kld ? careful_kld(r, c, r_lse, c_lse) : kNaN;
  } else {
    stats.kld = kNaN;
  }
  return stats;
}

RowStats measure_full(const RowView& r, const RowView& c, const MeasureOptions& options) {
  const auto scanned = [&](double r_shift, double c_shift) {
    return with_pointers(
        r, c, [&](const auto* a, const auto* b) { return scan_rows(a, b, r.n_vocab, r_shift, c_shift); });
  };
  RowScan scan = scanned(0, 0);
  if (!scan.finite()) return measure_careful(r, c, options);
  const bool same = identical(r, c);
  RowStats stats;
  stats.bit_identical = same;
  if (options.kld && !same) {
    const double r_max = scan.reference.first_value, c_max = scan.candidate.first_value;
    stats.kld = with_pointers(
        r, c, [&](const auto* a, const auto* b) { return kl_divergence(a, b, r.n_vocab, r_max, c_max); });
  }
  if (options.log_probs) {
    scan = scanned(row_lse(r, scan.reference.first_value), row_lse(c, scan.candidate.first_value));
  }
  stats.finite = true;
  stats.reference = scan.reference;
  stats.candidate = scan.candidate;
  stats.max_abs = scan.max_abs;
  stats.max_token = scan.max_token;
  stats.sum_abs = scan.sum_abs;
  stats.sum_sq = scan.sum_sq;
  stats.sum_ref_sq = scan.sum_ref_sq;
  stats.n_compared = r.n_vocab;
  set_scale(stats, scan.reference.first_value, scan.min_reference);
  return stats;
}

// ---- top-k rows ----

struct Kept {
  uint32_t id;
  double value;
};

// What one side is known to hold, by rising id: its kept values, or, for a full row, those of `wanted` ids.
std::vector<Kept> kept_values(const RowView& row) {
  std::vector<Kept> kept(row.k);
  for (uint32_t i = 0; i < row.k; ++i) {
    if (row.ids[i] >= row.n_vocab) {
      fail(ErrorCode::corrupt, "top-k row: token {} is outside the vocabulary of {}", row.ids[i],
           row.n_vocab);
    }
    kept[i] = {row.ids[i], static_cast<double>(row.values[i])};
  }
  std::sort(kept.begin(), kept.end(), [](const Kept& a, const Kept& b) { return a.id < b.id; });
  return kept;
}

std::vector<Kept> all_values(const RowView& row) {
  std::vector<Kept> kept(row.n_vocab);
  for (uint32_t i = 0; i < row.n_vocab; ++i) kept[i] = {i, logit(row, i)};
  return kept;
}

struct Side {
  std::vector<Kept> kept;
  double lse = 0;
  double least = kInfinity;  // the k-th value: an absent id is not above it; -infinity for a full row
  Top2 top;
  bool has_nan = false;
};

Side make_side(const RowView& row, bool log_probs) {
  Side side;
  side.kept = row.is_topk() ? kept_values(row) : all_values(row);
  side.lse = row.is_topk() ? row.log_sum_exp : careful_lse(row);
  for (Kept& kept : side.kept) {
    if (log_probs) kept.value -= side.lse;
    if (std::isnan(kept.value)) {
      side.has_nan = true;
      continue;
    }
    offer(side.top, kept.value, kept.id);
    side.least = std::min(side.least, kept.value);
  }
  if (log_probs) side.lse = 0;
  return side;
}

void note_drift(RowStats& stats, double drift, uint32_t token) {
  if (!(drift > stats.max_abs)) return;
  stats.max_abs = drift;
  stats.max_token = token;
}

// What a pair of top-k rows adds up to while ids are walked in step.
struct TopkSums {
  double p = 0;  // the reference's and the candidate's probability on ids that both hold
  double q = 0;
  double kld = 0;
  bool mismatch = false;  // a NaN, or an infinity against anything but itself
};

void compare_kept(const Kept& r, const Kept& c, const Side& ref, const Side& cand, RowStats& stats,
                  TopkSums& sums) {
  if (!both_finite(r.value, c.value, stats, sums.mismatch)) return;
  const double diff = r.value - c.value;
  note_drift(stats, std::abs(diff), r.id);
  stats.sum_abs += std::abs(diff);
  stats.sum_sq += diff * diff;
  stats.sum_ref_sq += r.value * r.value;
  ++stats.n_compared;
  const double log_p = r.value - ref.lse, log_q = c.value - cand.lse;
  const double p = std::exp(log_p), q = std::exp(log_q);
  sums.p += p;
  sums.q += q;
  sums.kld += p > 0 ? p * exp_minus_one_minus(log_q - log_p) : q;
}

// An id that one side alone holds: the other side's value is at most its k-th, so the drift is at least what lies above.
void bound_absent(const Kept& kept, const Side& other, RowStats& stats, TopkSums& sums) {
  if (!std::isfinite(kept.value)) {
    stats.finite = false;
    sums.mismatch |= !(kept.value == other.least);  // both -infinity: so is every absent value
    return;
  }
  note_drift(stats, kept.value - other.least, kept.id);
}

bool holds(const Side& side, uint32_t id) {
  const auto at = std::lower_bound(side.kept.begin(), side.kept.end(), id,
                                   [](const Kept& kept, uint32_t wanted) { return kept.id < wanted; });
  return at != side.kept.end() && at->id == id;
}

// The rest of both distributions taken as one token makes the divergence a lower bound of the full one.
double rest_kld(const TopkSums& sums) {
  const double p = std::max(0.0, 1 - sums.p), q = std::max(0.0, 1 - sums.q);
  constexpr double kRounding = 1e-12;  // of the two differences from 1
  if (p < kRounding || q < kRounding) return 0;
  return p * exp_minus_one_minus(std::log(q / p));
}

RowStats measure_topk(const RowView& r, const RowView& c, const MeasureOptions& options) {
  const Side ref = make_side(r, options.log_probs), cand = make_side(c, options.log_probs);
  RowStats stats;
  stats.bit_identical = identical(r, c);
  stats.finite = !ref.has_nan && !cand.has_nan && std::isfinite(ref.lse) && std::isfinite(cand.lse);
  stats.reference = ref.top;
  stats.candidate = cand.top;
  TopkSums sums;
  auto a = ref.kept.begin();
  auto b = cand.kept.begin();
  const bool ref_full = !r.is_topk(), cand_full = !c.is_topk();
  while (a != ref.kept.end() || b != cand.kept.end()) {
    if (b == cand.kept.end() || (a != ref.kept.end() && a->id < b->id)) {
      if (!cand_full) bound_absent(*a, cand, stats, sums);
      ++a;
    } else if (a == ref.kept.end() || b->id < a->id) {
      if (!ref_full) bound_absent(*b, ref, stats, sums);
      ++b;
    } else {
      compare_kept(*a++, *b++, ref, cand, stats, sums);
    }
  }
  if (ref.has_nan || cand.has_nan)
    stats.max_abs = kNaN;
  else if (sums.mismatch)
    stats.max_abs = kInfinity;
  stats.same_infinities =
      !stats.finite && !sums.mismatch && std::isfinite(ref.lse) && std::isfinite(cand.lse);
  stats.coverage = std::min(1.0, sums.p);
  stats.margin_known = !r.is_topk() || r.k > 1 || r.n_vocab == 1;
  stats.decided = stats.n_compared > 0 && holds(cand, ref.top.first) && holds(ref, cand.top.first);
  stats.half_range = std::isfinite(ref.least) ? ref.top.first_value - ref.least : 0;
  if (ref_full) stats.half_range /= 2;
  stats.max_magnitude = std::abs(ref.top.first_value);
  if (std::isfinite(ref.least)) stats.max_magnitude = std::max(stats.max_magnitude, std::abs(ref.least));
  stats.kld = stats.finite ? sums.kld + rest_kld(sums) : kNaN;
  return stats;
}

}  // namespace

RowStats measure_row(const RowView& reference, const RowView& candidate, const MeasureOptions& options) {
  if (reference.is_topk() || candidate.is_topk()) return measure_topk(reference, candidate, options);
  return measure_full(reference, candidate, options);
}

}  // namespace logitgate
