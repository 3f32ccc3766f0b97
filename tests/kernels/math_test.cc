// exp and tanh: within 2 and 4 units in the last place over their whole range, exact at its ends.
// Contract: the reference is long double arithmetic; a unit is the spacing of T at the exact result.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/math_test.cc"
#include <hwy/foreach_target.h>
// after foreach_target
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {

template <class T, bool kTanh>
void apply(const T* x, size_t n, T* y) {
  const VecTag<T> d;
  for (size_t i = 0; i < n; i += kLanes<T>) {
    const size_t m = HWY_MIN(kLanes<T>, n - i);
    const Vec<T> v = load_n(x + i, m);
    store_n<T>(kTanh ? Tanh(d, v) : Exp(d, v), y + i, m);
  }
}
void exp_f32(const float* x, size_t n, float* y) { apply<float, false>(x, n, y); }
void exp_f64(const double* x, size_t n, double* y) { apply<double, false>(x, n, y); }
void tanh_f32(const float* x, size_t n, float* y) { apply<float, true>(x, n, y); }
void tanh_f64(const double* x, size_t n, double* y) { apply<double, true>(x, n, y); }

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace logitgate::testing {
namespace {

HWY_EXPORT(exp_f32);
HWY_EXPORT(exp_f64);
HWY_EXPORT(tanh_f32);
HWY_EXPORT(tanh_f64);

void exp_of(const std::vector<float>& x, std::vector<float>& y) {
  HWY_DYNAMIC_DISPATCH(exp_f32)(x.data(), x.size(), y.data());
}
void exp_of(const std::vector<double>& x, std::vector<double>& y) {
  HWY_DYNAMIC_DISPATCH(exp_f64)(x.data(), x.size(), y.data());
}
void tanh_of(const std::vector<float>& x, std::vector<float>& y) {
  HWY_DYNAMIC_DISPATCH(tanh_f32)(x.data(), x.size(), y.data());
}
void tanh_of(const std::vector<double>& x, std::vector<double>& y) {
  HWY_DYNAMIC_DISPATCH(tanh_f64)(x.data(), x.size(), y.data());
}

template <class T>
class Math : public ::testing::Test {
 protected:
  void SetUp() override { select_simd(); }
};
using Elements = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Math, Elements);

// The spacing of T's numbers at |exact|.
template <class T>
long double unit_at(long double exact) {
  const int least = std::numeric_limits<T>::min_exponent - 1;
  const int exponent = exact == 0 ? least : std::max(least, std::ilogb(exact));
  return std::ldexp(1.0L, exponent - (std::numeric_limits<T>::digits - 1));
}

// Evenly spread points, and as many random ones near zero on a logarithmic scale.
template <class T>
std::vector<T> points(double low, double high, size_t n) {
  std::vector<T> x;
  std::mt19937_64 engine(1);
  std::uniform_real_distribution<double> exponent(-40, 3), jitter(0, 1);
  for (size_t i = 0; i < n; ++i) {
    x.push_back(static_cast<T>(low + (high - low) * (static_cast<double>(i) + jitter(engine)) /
                                         static_cast<double>(n)));
    const double small = std::exp2(exponent(engine));
    x.push_back(static_cast<T>(i % 2 == 0 ? small : -small));
  }
  return x;
}

template <class T, class Exact>
long double worst_units(const std::vector<T>& x, const std::vector<T>& y, Exact exact) {
  long double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const long double want = exact(static_cast<long double>(x[i]));
    const long double units = std::fabs(static_cast<long double>(y[i]) - want) / unit_at<T>(want);
    if (!(units <= worst)) worst = std::isnan(units) ? INFINITY : units;
  }
  return worst;
}

TYPED_TEST(Math, ExpIsWithinTwoUnits) {
  using T = TypeParam;
  const bool f64 = sizeof(T) == 8;
  const auto x = points<T>(f64 ? -745.2 : -103.9, f64 ? 709.7 : 88.7, 400000);
  std::vector<T> y(x.size(), std::numeric_limits<T>::quiet_NaN());
  exp_of(x, y);
  const long double worst = worst_units(x, y, [](long double v) { return std::exp(v); });
  EXPECT_LE(worst, 2.0L);
}

TYPED_TEST(Math, TanhIsWithinFourUnits) {
  using T = TypeParam;
  const auto x = points<T>(-25, 25, 400000);
  std::vector<T> y(x.size(), std::numeric_limits<T>::quiet_NaN());
  tanh_of(x, y);
  const long double worst = worst_units(x, y, [](long double v) { return std::tanh(v); });
  EXPECT_LE(worst, 4.0L);
}

TYPED_TEST(Math, Ends) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const T max = std::numeric_limits<T>::max(), tiny = std::numeric_limits<T>::denorm_min();
  const std::vector<T> x = {-inf, inf, nan, -nan, 0, T(-0.0), -max, max, tiny, -tiny, 1};
  std::vector<T> y(x.size(), 7);
  exp_of(x, y);
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], inf);
  EXPECT_TRUE(std::isnan(y[2]) && std::isnan(y[3]));
  for (const size_t one : {4, 5, 8, 9}) EXPECT_EQ(y[one], 1);
  EXPECT_EQ(y[6], 0);
  EXPECT_EQ(y[7], inf);
  tanh_of(x, y);
  EXPECT_EQ(y[0], -1);
  EXPECT_EQ(y[1], 1);
  EXPECT_TRUE(std::isnan(y[2]) && std::isnan(y[3]));
  EXPECT_TRUE(y[4] == 0 && !std::signbit(y[4]));
  EXPECT_TRUE(y[5] == 0 && std::signbit(y[5]));
  EXPECT_EQ(y[6], -1);
  EXPECT_EQ(y[7], 1);
  EXPECT_EQ(y[8], tiny);
  EXPECT_EQ(y[9], -tiny);
}

TYPED_TEST(Math, BitsDoNotDependOnTheSimdLevel) {
  using T = TypeParam;
  const auto x = points<T>(-800, 800, 100003);
  std::vector<T> e(x.size()), e2(x.size()), t(x.size()), t2(x.size());
  exp_of(x, e);
  tanh_of(x, t);
  select_simd("avx2");
  exp_of(x, e2);
  tanh_of(x, t2);
  select_simd();
  EXPECT_TRUE(e == e2);
  EXPECT_TRUE(t == t2);
}

}  // namespace
}  // namespace logitgate::testing
#endif  // HWY_ONCE
