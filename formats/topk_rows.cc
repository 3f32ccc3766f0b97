// Top-k by a bounded heap over sortable keys, log-sum-exp by an own exp in eight fixed lanes.
// Contract: see topk_rows.h.
#include "formats/topk_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "formats/simd_clones.h"

namespace logitgate {

namespace {

// Rises with the value; NaNs highest, both zeros equal.
inline uint32_t sortable(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return 0xFFFFFFFFu;
  if (u == 0x80000000u) return 0x80000000u;
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

struct Candidate {
  uint32_t key;
  uint32_t id;
};
// True if a belongs before b; as a heap's order it keeps the weakest candidate at the front.
inline bool stronger(const Candidate& a, const Candidate& b) {
  return a.key != b.key ? a.key > b.key : a.id < b.id;
}

// exp(x) for x <= 0, within 1 ulp or so: x = n ln 2 + r, Taylor to r^13 (remainder below 2^-57), scaled by
// 2^n.
inline double exp_nonpositive(double x) {
  constexpr double kLog2E = 1.4426950408889634074;
  constexpr double kLn2High = 0x1.62e42fefa0000p-1;
  constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;
  constexpr double kShift = 0x1.8p52;
  const double clamped = x < -700.0 ? -700.0 : x;
  const double shifted = clamped * kLog2E + kShift;
  const double n = shifted - kShift;
  const double r = (clamped - n * kLn2High) - n * kLn2Low;
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const uint64_t exponent = (std::bit_cast<uint64_t>(shifted) + 1023) << 52;
  return x < -700.0 ? 0.0 : p * std::bit_cast<double>(exponent);
}

constexpr size_t kLanes = 8;

template <class T>
inline double sum_of_exps(const T* row, size_t n, double top) {
  double lanes[kLanes] = {};
  const size_t whole = n - n % kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += exp_nonpositive(static_cast<double>(row[i + lane]) - top);
    }
  }
  for (size_t i = whole; i < n; ++i) lanes[i - whole] += exp_nonpositive(static_cast<double>(row[i]) - top);
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

LOGITGATE_SIMD_CLONES
double sum_of_exps_f32(const float* row, size_t n, double top) { return sum_of_exps(row, n, top); }

LOGITGATE_SIMD_CLONES
double sum_of_exps_f64(const double* row, size_t n, double top) { return sum_of_exps(row, n, top); }

// log(x) for x >= 1, by its series: no libm, so the same bits everywhere.
double log_at_least_one(double x) {
  const int exponent = static_cast<int>(std::bit_cast<uint64_t>(x) >> 52) - 1023;
  const double scaled =
      std::bit_cast<double>((std::bit_cast<uint64_t>(x) & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  // log(m) = 2 atanh((m - 1) / (m + 1)) for m in [1, 2): the series in t^2 <= 1/9, to t^33.
  const double t = (scaled - 1.0) / (scaled + 1.0);
  const double t2 = t * t;
  double p = 1.0 / 33.0;
  for (int k = 31; k >= 1; k -= 2) p = p * t2 + 1.0 / k;
  constexpr double kLn2High = 0x1.62e42fefa0000p-1;
  constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;
  return exponent * kLn2High + (2.0 * t * p + exponent * kLn2Low);
}

template <class T, class Sum>
double log_sum_exp_of(std::span<const T> row, Sum sum) {
  T top = -std::numeric_limits<T>::infinity();
  bool nan = false;
  for (const T x : row) {
    nan |= x != x;
    top = x > top ? x : top;
  }
  if (nan) return std::numeric_limits<double>::quiet_NaN();
  if (std::isinf(top)) return static_cast<double>(top);
  const double offset = static_cast<double>(top);
  return offset + log_at_least_one(sum(row.data(), row.size(), offset));
}

}  // namespace

void select_topk(std::span<const float> row, uint32_t k, uint32_t* ids, float* values) {
  std::vector<Candidate> heap;
  heap.reserve(k);
  for (uint32_t id = 0; id < k; ++id) heap.push_back({sortable(row[id]), id});
  std::make_heap(heap.begin(), heap.end(), stronger);
  uint32_t weakest = heap.front().key;
  for (uint32_t id = k; id < row.size(); ++id) {
    const uint32_t key = sortable(row[id]);
    if (key <= weakest) continue;  // an equal key loses to the lower id that is in already
    std::pop_heap(heap.begin(), heap.end(), stronger);
    heap.back() = {key, id};
    std::push_heap(heap.begin(), heap.end(), stronger);
    weakest = heap.front().key;
  }
  std::sort(heap.begin(), heap.end(), stronger);
  for (uint32_t i = 0; i < k; ++i) {
    ids[i] = heap[i].id;
    values[i] = row[heap[i].id];
  }
}

double log_sum_exp(std::span<const float> row) { return log_sum_exp_of(row, sum_of_exps_f32); }
double log_sum_exp(std::span<const double> row) { return log_sum_exp_of(row, sum_of_exps_f64); }

}  // namespace logitgate
