// RMS norm over groups of a row.
// Contract: see norm.h.
#include "kernels/cpu/norm.h"

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cc"
#include <hwy/foreach_target.h>
// after foreach_target
#include <cmath>

#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE T sum_of_squares(const T* x, size_t n) {
  Lanes16<T> acc = zero16<T>();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const Lanes16<T> v = load16(x + i);
    multiply_add16(acc, v, v);
  }
  if (i < n) {
    const Lanes16<T> v = load16_tail(x + i, n - i);
    multiply_add16(acc, v, v);
  }
  return sum16(acc);
}

template <class T>
void normalise(const T* x, const T* w, size_t n_groups, size_t n, T eps, T* y) {
  for (size_t g = 0; g < n_groups; ++g, x += n, y += n) {
    const T mean = sum_of_squares(x, n) / static_cast<T>(n);
    const Vec<T> scale = hn::Set(VecTag<T>(), T{1} / std::sqrt(mean + eps));
    for (size_t i = 0; i < n; i += kLanes<T>) {
      const size_t m = HWY_MIN(kLanes<T>, n - i);
      store_n<T>(hn::Mul(hn::Mul(load_n(x + i, m), scale), load_n(w + i, m)), y + i, m);
    }
  }
}

void normalise_f32(const float* x, const float* w, size_t n_groups, size_t n, float eps, float* y) {
  normalise<float>(x, w, n_groups, n, eps, y);
}
void normalise_f64(const double* x, const double* w, size_t n_groups, size_t n, double eps, double* y) {
  normalise<double>(x, w, n_groups, n, eps, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu/elementwise.h"

namespace logitgate {
namespace {

HWY_EXPORT(normalise_f32);
HWY_EXPORT(normalise_f64);

void dispatch(const float* x, const float* w, size_t n_groups, size_t n, double eps, float* y) {
  HWY_DYNAMIC_DISPATCH(normalise_f32)(x, w, n_groups, n, static_cast<float>(eps), y);
}
void dispatch(const double* x, const double* w, size_t n_groups, size_t n, double eps, double* y) {
  HWY_DYNAMIC_DISPATCH(normalise_f64)(x, w, n_groups, n, eps, y);
}

}  // namespace

template <class T>
void rms_norm(ThreadPool& pool, const T* x, const T* w, size_t n_groups, size_t n, double eps, T* y) {
  run_in_runs(pool, n_groups, n,
              [&](size_t first, size_t count) { dispatch(x + first * n, w, count, n, eps, y + first * n); });
}

template void rms_norm<float>(ThreadPool&, const float*, const float*, size_t, size_t, double, float*);
template void rms_norm<double>(ThreadPool&, const double*, const double*, size_t, size_t, double, double*);

}  // namespace logitgate
#endif  // HWY_ONCE
