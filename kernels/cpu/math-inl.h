// exp and tanh of vectors of float or double, from IEEE operations alone.
// Contract: exp within 2 ulp (subnormal results within 2 of their own), tanh within 4; NaN stays NaN, exp(-∞) = 0,
// overflow is +∞, tanh(±∞) = ±1, tanh(±0) = ±0. The same bits at every SIMD level: no libm, only FMA, division and shifts.
//
// exp(x) = 2^n e^r with n = round(x / ln 2), r = x - n ln 2 in |r| <= ln 2 / 2, e^r by its Taylor polynomial;
// tanh(x) = m / (m + 2) with m = e^(2|x|) - 1 = 2^n (e^r - 1) + (2^n - 1), and the sign of x.
#if defined(LOGITGATE_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOGITGATE_KERNELS_CPU_MATH_INL_H_
#undef LOGITGATE_KERNELS_CPU_MATH_INL_H_
#else
#define LOGITGATE_KERNELS_CPU_MATH_INL_H_
#endif

#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {

// `lowest` is where exp has become 0, `highest` where it has become infinite; adding `magic` leaves a number
// rounded to an integer in the low bits; ln2 = ln2_high + ln2_low; `flat` is where tanh has become 1.
template <class T>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float lowest = -105.0f, highest = 89.0f, flat = 10.0f;
  static constexpr float magic = 12582912.0f, bias = 127.0f;  // 1.5 · 2^23
  static constexpr float log2_e = 1.4426950408889634f;
  static constexpr float ln2_high = 0.693147180559945309f, ln2_low = -1.9046542999577680e-9f;
  static constexpr int mantissa_bits = 23, degree = 7;
};
template <>
struct ExpConstants<double> {
  static constexpr double lowest = -746.0, highest = 710.0, flat = 20.0;
  static constexpr double magic = 6755399441055744.0, bias = 1023.0;  // 1.5 · 2^52
  static constexpr double log2_e = 1.4426950408889634074;
  static constexpr double ln2_high = 0.693147180559945309417, ln2_low = 2.3190468138462996e-17;
  static constexpr int mantissa_bits = 52, degree = 13;
};

constexpr double inverse_factorial(int n) { return n < 2 ? 1.0 : inverse_factorial(n - 1) / n; }

// 2^n for integers n with n + bias in the range of the exponent
template <class D, class V = hn::Vec<D>>
HWY_INLINE V power_of_two(D d, V n) {
  using C = ExpConstants<hn::TFromD<D>>;
  const hn::RebindToUnsigned<D> bits;
  const V shifted = hn::Add(n, hn::Set(d, C::magic + C::bias));
  return hn::BitCast(d, hn::ShiftLeft<C::mantissa_bits>(hn::BitCast(bits, shifted)));
}

// Σ r^(k-2) / k! for k = 2…degree, so that e^r = 1 + r + r² · this
template <int kTerm, class D, class V = hn::Vec<D>>
HWY_INLINE V exp_series(D d, V r) {
  using T = hn::TFromD<D>;
  const V c = hn::Set(d, static_cast<T>(inverse_factorial(kTerm)));
  if constexpr (kTerm == ExpConstants<T>::degree) {
    return c;
  } else {
    return hn::MulAdd(exp_series<kTerm + 1>(d, r), r, c);
  }
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_nearest_power(D d, V x, V& r) {
  using C = ExpConstants<hn::TFromD<D>>;
  const V magic = hn::Set(d, C::magic);
  const V n = hn::Sub(hn::MulAdd(x, hn::Set(d, C::log2_e), magic), magic);
  r = hn::NegMulAdd(n, hn::Set(d, C::ln2_high), x);
  r = hn::NegMulAdd(n, hn::Set(d, C::ln2_low), r);
  return n;
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  using T = hn::TFromD<D>;
  using C = ExpConstants<T>;
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, C::lowest)), hn::Set(d, C::highest));
  V r;
  const V n = exp_nearest_power(d, bounded, r);
  const V e_r = hn::MulAdd(hn::MulAdd(exp_series<2>(d, r), r, hn::Set(d, T{1})), r, hn::Set(d, T{1}));
  // 2^n in two factors, so that results below the normal range are rounded once.
  const V magic = hn::Set(d, C::magic);
  const V n1 = hn::Sub(hn::MulAdd(n, hn::Set(d, T(0.5)), magic), magic);
  const V n2 = hn::Sub(n, n1);
  const V y = hn::Mul(hn::Mul(e_r, power_of_two(d, n1)), power_of_two(d, n2));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V Tanh(D d, V x) {
  using T = hn::TFromD<D>;
  using C = ExpConstants<T>;
  const V a = hn::Min(hn::Abs(x), hn::Set(d, C::flat));
  V r;
  const V n = exp_nearest_power(d, hn::Add(a, a), r);
  const V series = hn::MulAdd(hn::Mul(r, r), exp_series<2>(d, r), r);
  const V scale = power_of_two(d, n);
  const V m = hn::MulAdd(scale, series, hn::Sub(scale, hn::Set(d, T{1})));
  const V y = hn::CopySign(hn::Div(m, hn::Add(m, hn::Set(d, T{2}))), x);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();
#endif  // LOGITGATE_KERNELS_CPU_MATH_INL_H_
