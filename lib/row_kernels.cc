// Highway kernels of row_kernels.h, compiled once for every vector width and chosen at run time.
// Contract: see row_kernels.h. Sums use eight lanes on every target: element i goes to lane i mod 8, lanes are added
// pairwise at the end.
#include "lib/row_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#ifndef LOGITGATE_KLD_TOTALS
#define LOGITGATE_KLD_TOTALS
namespace logitgate {
// The sums of w, w g(x) and w x over a row; see kl_divergence.
struct KldTotals {
  double w, w_g, w_x;
};
}  // namespace logitgate
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/row_kernels.cc"
// Vectors of unknown length cannot be held in arrays; those targets' 128-bit relatives serve. Between the baseline and
// AVX2, and beyond AVX-512's first form, there is nothing to gain here.
#define HWY_DISABLED_TARGETS \
  (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<double, 8>;
using V = hn::Vec<D>;
constexpr size_t kSumLanes = 8;
constexpr size_t kLanes = hn::MaxLanes(D());
constexpr size_t kParts = kSumLanes / kLanes;
constexpr size_t kBlock = 2048;  // elements between two looks at the maxima
constexpr double kInfinity = std::numeric_limits<double>::infinity();

HWY_INLINE V load(const float* p) { return hn::PromoteTo(D(), hn::LoadU(hn::Rebind<float, D>(), p)); }
HWY_INLINE V load(const double* p) { return hn::LoadU(D(), p); }

// Eight running sums.
struct Sum {
  V lane[kParts];

  HWY_INLINE Sum() {
    for (size_t p = 0; p < kParts; ++p) lane[p] = hn::Zero(D());
  }
  HWY_INLINE void store(double* out) const {
    for (size_t p = 0; p < kParts; ++p) hn::StoreU(lane[p], D(), out + p * kLanes);
  }
};

HWY_INLINE double add_lanes(const double* lane) {
  return ((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7]));
}
HWY_INLINE double add_lanes(const Sum& sum) {
  double lane[kSumLanes];
  sum.store(lane);
  return add_lanes(lane);
}

HWY_INLINE void insert(double x, double& first, double& second) {
  if (x > first) {
    second = first;
    first = x;
  } else if (x > second) {
    second = x;
  }
}

// The two largest values seen so far and the block each was first seen in.
struct TopBlocks {
  double first = -kInfinity, second = -kInfinity;
  size_t first_at = 0, second_at = 0;

  void merge(double block_first, double block_second, size_t at) {
    if (block_first > first) {
      const bool keep = first >= block_second;  // an earlier block's value wins a tie
      second = keep ? first : block_second;
      second_at = keep ? first_at : at;
      first = block_first;
      first_at = at;
    } else if (block_first > second) {
      second = block_first;
      second_at = at;
    }
  }
};

// What one block of at most kBlock elements found besides its sums.
struct BlockMaxima {
  double ref_first = -kInfinity, ref_second = -kInfinity;
  double cand_first = -kInfinity, cand_second = -kInfinity;
  double max_abs = -1, min_ref = kInfinity;
};

HWY_INLINE void fold_top(V first, V second, double& best, double& next) {
  double a[kLanes], b[kLanes];
  hn::StoreU(first, D(), a);
  hn::StoreU(second, D(), b);
  for (size_t i = 0; i < kLanes; ++i) {
    insert(a[i], best, next);
    insert(b[i], best, next);
  }
}

template <class R, class C>
struct Scanner {
  const R* ref;
  const C* cand;
  double ref_shift;
  double cand_shift;
  double sum_abs[kSumLanes] = {}, sum_sq[kSumLanes] = {}, sum_ref_sq[kSumLanes] = {};

  // Elements [begin, end), a multiple of eight.
  HWY_INLINE BlockMaxima block(size_t begin, size_t end) {
    const D d;
    const V rs = hn::Set(d, ref_shift), cs = hn::Set(d, cand_shift);
    V r1 = hn::Set(d, -kInfinity), r2 = r1, c1 = r1, c2 = r1, max_abs = hn::Zero(d),
      min_ref = hn::Set(d, kInfinity);
    Sum abs_sum, sq_sum, ref_sum;
    for (size_t i = begin; i < end; i += kSumLanes) {
      for (size_t p = 0; p < kParts; ++p) {
        const V r = hn::Sub(load(ref + i + p * kLanes), rs);
        const V c = hn::Sub(load(cand + i + p * kLanes), cs);
        const V diff = hn::Sub(r, c);
        const V abs = hn::Abs(diff);
        abs_sum.lane[p] = hn::Add(abs_sum.lane[p], abs);
        sq_sum.lane[p] = hn::MulAdd(diff, diff, sq_sum.lane[p]);
        ref_sum.lane[p] = hn::MulAdd(r, r, ref_sum.lane[p]);
        max_abs = hn::Max(max_abs, abs);
        min_ref = hn::Min(min_ref, r);
        r2 = hn::Max(r2, hn::Min(r1, r));
        r1 = hn::Max(r1, r);
        c2 = hn::Max(c2, hn::Min(c1, c));
        c1 = hn::Max(c1, c);
      }
    }
    add(abs_sum, sum_abs);
    add(sq_sum, sum_sq);
    add(ref_sum, sum_ref_sq);
    BlockMaxima found;
    found.max_abs = hn::GetLane(hn::MaxOfLanes(d, max_abs));
    found.min_ref = hn::GetLane(hn::MinOfLanes(d, min_ref));
    fold_top(r1, r2, found.ref_first, found.ref_second);
    fold_top(c1, c2, found.cand_first, found.cand_second);
    return found;
  }

  // The last elements, fewer than eight.
  BlockMaxima tail(size_t begin, size_t end) {
    BlockMaxima found;
    for (size_t i = begin; i < end; ++i) {
      const double r = static_cast<double>(ref[i]) - ref_shift;
      const double c = static_cast<double>(cand[i]) - cand_shift;
      const double diff = r - c;
      sum_abs[i - begin] += std::abs(diff);
      sum_sq[i - begin] += diff * diff;
      sum_ref_sq[i - begin] += r * r;
      found.max_abs = std::max(found.max_abs, std::abs(diff));
      found.min_ref = std::min(found.min_ref, r);
      insert(r, found.ref_first, found.ref_second);
      insert(c, found.cand_first, found.cand_second);
    }
    return found;
  }

 private:
  static HWY_INLINE void add(const Sum& sum, double* lanes) {
    double lane[kSumLanes];
    sum.store(lane);
    for (size_t i = 0; i < kSumLanes; ++i) lanes[i] += lane[i];
  }
};

// The first element of [begin, n) but `skip` that equals value, which is known to be there.
template <class T>
uint32_t find_value(const T* row, size_t begin, size_t n, double shift, double value, uint32_t skip) {
  for (size_t i = begin; i < n; ++i) {
    if (static_cast<double>(row[i]) - shift == value && i != skip) return static_cast<uint32_t>(i);
  }
  return kNoToken;
}

template <class T>
Top2 locate(const T* row, size_t n, double shift, const TopBlocks& top) {
  Top2 result;
  result.first_value = top.first;
  result.first = find_value(row, top.first_at, n, shift, top.first, kNoToken);
  if (n > 1) {
    result.second_value = top.second;
    result.second = find_value(row, top.second_at, n, shift, top.second, result.first);
  }
  return result;
}

template <class R, class C>
RowScan scan(const R* reference, const C* candidate, size_t n, double reference_shift,
             double candidate_shift) {
  Scanner<R, C> scanner{reference, candidate, reference_shift, candidate_shift};
  TopBlocks ref_top, cand_top;
  RowScan result;
  double max_abs = -1, min_ref = kInfinity;
  size_t max_at = 0;
  const size_t whole = n - n % kSumLanes;
  for (size_t begin = 0; begin < n;) {
    const size_t end = begin < whole ? std::min(begin + kBlock, whole) : n;
    const BlockMaxima found = begin < whole ? scanner.block(begin, end) : scanner.tail(begin, end);
    ref_top.merge(found.ref_first, found.ref_second, begin);
    cand_top.merge(found.cand_first, found.cand_second, begin);
    if (found.max_abs > max_abs) {
      max_abs = found.max_abs;
      max_at = begin;
    }
    min_ref = std::min(min_ref, found.min_ref);
    begin = end;
  }
  result.sum_abs = add_lanes(scanner.sum_abs);
  result.sum_sq = add_lanes(scanner.sum_sq);
  result.sum_ref_sq = add_lanes(scanner.sum_ref_sq);
  if (!result.finite()) return result;
  result.max_abs = max_abs;
  result.min_reference = min_ref;
  result.reference = locate(reference, n, reference_shift, ref_top);
  result.candidate = locate(candidate, n, candidate_shift, cand_top);
  for (size_t i = max_at; i < n; ++i) {
    const double r = static_cast<double>(reference[i]) - reference_shift;
    const double c = static_cast<double>(candidate[i]) - candidate_shift;
    if (std::abs(r - c) == max_abs) {
      result.max_token = static_cast<uint32_t>(i);
      break;
    }
  }
  return result;
}

// Taylor's polynomial of e^f of the given degree, for |f| <= ln 2 / 2: remainder 4e-18 of degree 13, 6e-15 of degree 11.
template <int kDegree>
HWY_INLINE V exp_polynomial(V f) {
  const D d;
  V y = hn::Set(d, 1.0 / 39916800);
  if constexpr (kDegree == 13) {
    y = hn::Set(d, 1.0 / 6227020800);
    y = hn::MulAdd(y, f, hn::Set(d, 1.0 / 479001600));
    y = hn::MulAdd(y, f, hn::Set(d, 1.0 / 39916800));
  }
  y = hn::MulAdd(y, f, hn::Set(d, 1.0 / 3628800));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0 / 362880));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0 / 40320));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0 / 5040));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0 / 720));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0 / 120));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0 / 24));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0 / 6));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0 / 2));
  y = hn::MulAdd(y, f, hn::Set(d, 1.0));
  return hn::MulAdd(y, f, hn::Set(d, 1.0));
}

// exp(x) for x <= 1, 0 below -708; within 2 ulp of degree 13. x = n ln 2 + f with |f| <= ln 2 / 2, and n is added to the
// exponent bits of e^f, from where the rounding constant has left it.
template <int kDegree>
HWY_INLINE V exp_of(V x) {
  const D d;
  const hn::Rebind<uint64_t, D> du;
  const V round = hn::Set(d, 0x1.8p52);
  const V t = hn::MulAdd(x, hn::Set(d, 0x1.71547652b82fep0), round);
  const V n = hn::Sub(t, round);
  V f = hn::NegMulAdd(n, hn::Set(d, 0x1.62e42feep-1), x);
  f = hn::NegMulAdd(n, hn::Set(d, 0x1.a39ef35793c76p-33), f);
  const V y = exp_polynomial<kDegree>(f);
  const auto bits = hn::Add(hn::BitCast(du, y), hn::ShiftLeft<52>(hn::BitCast(du, t)));
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -708.0)), hn::BitCast(d, bits));
}

// Keeps the first n_valid of eight elements' terms: how the last, incomplete eight of a row are masked.
HWY_INLINE V mask_part(V term, size_t part, size_t n_valid) {
  if (n_valid >= kSumLanes) return term;
  const size_t first = part * kLanes;
  const size_t n = n_valid > first ? std::min(n_valid - first, kLanes) : 0;
  return hn::IfThenElseZero(hn::FirstN(D(), n), term);
}

// The last elements of a row, from i on, made eight by repeating the first of them.
template <class T>
HWY_INLINE void pad_eight(const T* row, size_t i, size_t n, T* padded) {
  std::fill_n(padded, kSumLanes, row[i]);
  std::copy(row + i, row + n, padded);
}

template <class T>
HWY_INLINE void sum_exp_eight(const T* x, V shift, Sum& sum, size_t n_valid = kSumLanes) {
  for (size_t p = 0; p < kParts; ++p) {
    const V term = exp_of<13>(hn::Sub(load(x + p * kLanes), shift));
    sum.lane[p] = hn::Add(sum.lane[p], mask_part(term, p, n_valid));
  }
}

template <class T>
double sum_exp(const T* row, size_t n, double max) {
  const V shift = hn::Set(D(), max);
  Sum sum;
  size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) sum_exp_eight(row + i, shift, sum);
  if (i < n) {
    T padded[kSumLanes];
    pad_eight(row, i, n, padded);
    sum_exp_eight(padded, shift, sum, n - i);
  }
  return add_lanes(sum);
}

// e^d - 1 - d for |d| < 1/16: d^2 (1/2! + d/3! + … + d^7/9!), remainder 1.3e-16.
HWY_INLINE V small_g(V d_value) {
  const D d;
  V y = hn::Set(d, 1.0 / 362880);
  y = hn::MulAdd(y, d_value, hn::Set(d, 1.0 / 40320));
  y = hn::MulAdd(y, d_value, hn::Set(d, 1.0 / 5040));
  y = hn::MulAdd(y, d_value, hn::Set(d, 1.0 / 720));
  y = hn::MulAdd(y, d_value, hn::Set(d, 1.0 / 120));
  y = hn::MulAdd(y, d_value, hn::Set(d, 1.0 / 24));
  y = hn::MulAdd(y, d_value, hn::Set(d, 1.0 / 6));
  y = hn::MulAdd(y, d_value, hn::Set(d, 1.0 / 2));
  return hn::Mul(hn::Mul(d_value, d_value), y);
}

// What kl_divergence adds up, with w = exp(r - max r), x = (c - r) - (max c - max r) and g(x) = e^x - 1 - x.
struct KldSums {
  Sum w, w_g, w_x;
  HWY_INLINE KldSums() {}
};

template <class R, class C>
HWY_INLINE void kld_eight(const R* ref, const C* cand, V ref_max, V cand_max, KldSums& sums,
                          size_t n_valid = kSumLanes) {
  const D d;
  for (size_t part = 0; part < kParts; ++part) {
    const V r = load(ref + part * kLanes);
    const V c = load(cand + part * kLanes);
    const V x = hn::Sub(hn::Sub(c, r), hn::Sub(cand_max, ref_max));  // exact where the rows are close
    const V w = mask_part(exp_of<11>(hn::Sub(r, ref_max)), part, n_valid);
    V w_x = hn::Mul(w, x);
    V w_g = hn::Mul(w, small_g(x));
    const auto small = hn::Lt(hn::Abs(x), hn::Set(d, 1.0 / 16));
    if (!hn::AllTrue(d, small)) {
      // Away from 0 nothing cancels: w e^x - w - w x, where w e^x = exp(c - max c) however large x is.
      const V q = mask_part(exp_of<11>(hn::Sub(c, cand_max)), part, n_valid);
      const V large = hn::Max(hn::Zero(d), hn::Sub(hn::Sub(q, w), w_x));
      w_g = hn::IfThenElse(small, w_g, large);
    }
    sums.w.lane[part] = hn::Add(sums.w.lane[part], w);
    sums.w_g.lane[part] = hn::Add(sums.w_g.lane[part], w_g);
    sums.w_x.lane[part] = hn::Add(sums.w_x.lane[part], w_x);
  }
}

template <class R, class C>
KldTotals kld(const R* reference, const C* candidate, size_t n, double reference_max, double candidate_max) {
  const V ref_max = hn::Set(D(), reference_max), cand_max = hn::Set(D(), candidate_max);
  KldSums sums;
  size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) {
    kld_eight(reference + i, candidate + i, ref_max, cand_max, sums);
  }
  if (i < n) {
    R r[kSumLanes];
    C c[kSumLanes];
    pad_eight(reference, i, n, r);
    pad_eight(candidate, i, n, c);
    kld_eight(r, c, ref_max, cand_max, sums, n - i);
  }
  return {add_lanes(sums.w), add_lanes(sums.w_g), add_lanes(sums.w_x)};
}

#define LOGITGATE_SCAN(name, R, C)                                                       \
  RowScan Scan##name(const R* r, const C* c, size_t n, double r_shift, double c_shift) { \
    return scan(r, c, n, r_shift, c_shift);                                              \
  }                                                                                      \
  KldTotals Kld##name(const R* r, const C* c, size_t n, double r_max, double c_max) {    \
    return kld(r, c, n, r_max, c_max);                                                   \
  }
LOGITGATE_SCAN(FF, float, float)
LOGITGATE_SCAN(FD, float, double)
LOGITGATE_SCAN(DF, double, float)
LOGITGATE_SCAN(DD, double, double)
#undef LOGITGATE_SCAN
double SumExpF(const float* row, size_t n, double max) { return sum_exp(row, n, max); }
double SumExpD(const double* row, size_t n, double max) { return sum_exp(row, n, max); }

void ExpValues(const double* x, double* out, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    double lane[kLanes];
    hn::StoreU(exp_of<13>(hn::Set(D(), x[i])), D(), lane);
    out[i] = lane[0];
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace logitgate {

HWY_EXPORT(ScanFF);
HWY_EXPORT(ScanFD);
HWY_EXPORT(ScanDF);
HWY_EXPORT(ScanDD);
HWY_EXPORT(KldFF);
HWY_EXPORT(KldFD);
HWY_EXPORT(KldDF);
HWY_EXPORT(KldDD);
HWY_EXPORT(SumExpF);
HWY_EXPORT(SumExpD);
HWY_EXPORT(ExpValues);

template <>
double log_sum_exp<float>(const float* row, size_t n, double max) {
  return max + std::log(HWY_DYNAMIC_DISPATCH(SumExpF)(row, n, max));
}
template <>
double log_sum_exp<double>(const double* row, size_t n, double max) {
  return max + std::log(HWY_DYNAMIC_DISPATCH(SumExpD)(row, n, max));
}

namespace {

template <class C>
double finish_kld(const KldTotals& sums, const C* candidate, size_t n, double candidate_max) {
  const double g = sums.w_g / sums.w;
  const double u = g + sums.w_x / sums.w;
  // u = (sum of w e^x) / (sum of w) - 1; close to -1 the difference has lost its digits.
  const double t =
      u > -0.5 ? std::log1p(u) : log_sum_exp(candidate, n, candidate_max) - candidate_max - std::log(sums.w);
  return std::max(0.0, g - exp_minus_one_minus(t));
}

}  // namespace

double Top2::margin() const {
  if (first == kNoToken) return std::numeric_limits<double>::quiet_NaN();
  if (first_value == second_value) return 0;  // infinities included
  return first_value - second_value;
}

#define LOGITGATE_DISPATCH(name, R, C)                                                        \
  template <>                                                                                 \
  RowScan scan_rows<R, C>(const R* r, const C* c, size_t n, double r_shift, double c_shift) { \
    return HWY_DYNAMIC_DISPATCH(Scan##name)(r, c, n, r_shift, c_shift);                       \
  }                                                                                           \
  template <>                                                                                 \
  double kl_divergence<R, C>(const R* r, const C* c, size_t n, double r_max, double c_max) {  \
    return finish_kld(HWY_DYNAMIC_DISPATCH(Kld##name)(r, c, n, r_max, c_max), c, n, c_max);   \
  }
LOGITGATE_DISPATCH(FF, float, float)
LOGITGATE_DISPATCH(FD, float, double)
LOGITGATE_DISPATCH(DF, double, float)
LOGITGATE_DISPATCH(DD, double, double)
#undef LOGITGATE_DISPATCH

double exp_minus_one_minus(double x) {
  if (!(std::abs(x) < 1.0 / 16)) return std::max(0.0, std::expm1(x) - x);
  double y = 1.0 / 362880;
  for (const double factorial : {40320.0, 5040.0, 720.0, 120.0, 24.0, 6.0, 2.0}) y = y * x + 1 / factorial;
  return x * x * y;
}

void exp_values(const double* x, double* out, size_t n) { HWY_DYNAMIC_DISPATCH(ExpValues)(x, out, n); }

}  // namespace logitgate
#endif  // HWY_ONCE
