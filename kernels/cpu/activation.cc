// Ops element by element: activation functions and sums.
// Contract: see activation.h.
#include "kernels/cpu/activation.h"

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cc"
#include <hwy/foreach_target.h>
// after foreach_target
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {

template <class T>
void swiglu_run(const T* gate, const T* up, size_t n, T* y) {
  const VecTag<T> d;
  for (size_t i = 0; i < n; i += kLanes<T>) {
    const size_t m = HWY_MIN(kLanes<T>, n - i);
    const Vec<T> g = load_n(gate + i, m);
    const Vec<T> silu = hn::Div(g, hn::Add(hn::Set(d, T{1}), Exp(d, hn::Neg(g))));
    store_n<T>(hn::Mul(silu, load_n(up + i, m)), y + i, m);
  }
}

template <class T>
void add_run(const T* y, size_t n, T* x) {
  for (size_t i = 0; i < n; i += kLanes<T>) {
    const size_t m = HWY_MIN(kLanes<T>, n - i);
    store_n<T>(hn::Add(load_n(x + i, m), load_n(y + i, m)), x + i, m);
  }
}

void swiglu_f32(const float* gate, const float* up, size_t n, float* y) { swiglu_run<float>(gate, up, n, y); }
void swiglu_f64(const double* gate, const double* up, size_t n, double* y) {
  swiglu_run<double>(gate, up, n, y);
}
void add_f32(const float* y, size_t n, float* x) { add_run<float>(y, n, x); }
void add_f64(const double* y, size_t n, double* x) { add_run<double>(y, n, x); }

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu/elementwise.h"

namespace logitgate {
namespace {

HWY_EXPORT(swiglu_f32);
HWY_EXPORT(swiglu_f64);
HWY_EXPORT(add_f32);
HWY_EXPORT(add_f64);

void swiglu_dispatch(const float* gate, const float* up, size_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(swiglu_f32)(gate, up, n, y);
}
void swiglu_dispatch(const double* gate, const double* up, size_t n, double* y) {
  HWY_DYNAMIC_DISPATCH(swiglu_f64)(gate, up, n, y);
}
void add_dispatch(const float* y, size_t n, float* x) { HWY_DYNAMIC_DISPATCH(add_f32)(y, n, x); }
void add_dispatch(const double* y, size_t n, double* x) { HWY_DYNAMIC_DISPATCH(add_f64)(y, n, x); }

}  // namespace

template <class T>
void swiglu(ThreadPool& pool, const T* gate, const T* up, size_t n, T* y) {
  run_in_runs(pool, n, 1, [&](size_t i, size_t count) { swiglu_dispatch(gate + i, up + i, count, y + i); });
}

template <class T>
void add_to(ThreadPool& pool, const T* y, size_t n, T* x) {
  run_in_runs(pool, n, 1, [&](size_t i, size_t count) { add_dispatch(y + i, count, x + i); });
}

template void swiglu<float>(ThreadPool&, const float*, const float*, size_t, float*);
template void swiglu<double>(ThreadPool&, const double*, const double*, size_t, double*);
template void add_to<float>(ThreadPool&, const float*, size_t, float*);
template void add_to<double>(ThreadPool&, const double*, size_t, double*);

}  // namespace logitgate
#endif  // HWY_ONCE
