// Rotary position embedding, in place.
// Contract: see rope.h.
#include "kernels/cpu/rope.h"

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cc"
#include <hwy/foreach_target.h>
// after foreach_target
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE void rotate_halves(T* head, size_t n_pairs, const T* cos, const T* sin) {
  for (size_t i = 0; i < n_pairs; i += kLanes<T>) {
    const size_t m = HWY_MIN(kLanes<T>, n_pairs - i);
    const Vec<T> a = load_n(head + i, m), b = load_n(head + n_pairs + i, m);
    const Vec<T> c = load_n(cos + i, m), s = load_n(sin + i, m);
    store_n<T>(hn::NegMulAdd(b, s, hn::Mul(a, c)), head + i, m);
    store_n<T>(hn::MulAdd(b, c, hn::Mul(a, s)), head + n_pairs + i, m);
  }
}

template <class T>
HWY_INLINE void rotate_interleaved(T* head, size_t n_pairs, const T* cos, const T* sin) {
  const hn::CappedTag<T, 1> d;
  for (size_t i = 0; i < n_pairs; ++i) {
    const auto a = hn::LoadU(d, head + 2 * i), b = hn::LoadU(d, head + 2 * i + 1);
    const auto c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, head + 2 * i);
    hn::StoreU(hn::MulAdd(b, c, hn::Mul(a, s)), d, head + 2 * i + 1);
  }
}

template <class T>
void rotate_tokens(T* x, size_t n_tokens, const int32_t* positions, const RopeShape<T>& shape) {
  const size_t n_pairs = shape.n_rot / 2;
  for (size_t t = 0; t < n_tokens; ++t) {
    const T* cos = shape.cos + static_cast<size_t>(positions[t]) * n_pairs;
    const T* sin = shape.sin + static_cast<size_t>(positions[t]) * n_pairs;
    for (size_t h = 0; h < shape.n_heads; ++h) {
      T* head = x + (t * shape.n_heads + h) * shape.head_dim;
      if (shape.interleaved) {
        rotate_interleaved(head, n_pairs, cos, sin);
      } else {
        rotate_halves(head, n_pairs, cos, sin);
      }
    }
  }
}

void rotate_tokens_f32(float* x, size_t n, const int32_t* positions, const RopeShape<float>& shape) {
  rotate_tokens<float>(x, n, positions, shape);
}
void rotate_tokens_f64(double* x, size_t n, const int32_t* positions, const RopeShape<double>& shape) {
  rotate_tokens<double>(x, n, positions, shape);
}

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu/elementwise.h"

namespace logitgate {
namespace {

HWY_EXPORT(rotate_tokens_f32);
HWY_EXPORT(rotate_tokens_f64);

void dispatch(float* x, size_t n, const int32_t* positions, const RopeShape<float>& shape) {
  HWY_DYNAMIC_DISPATCH(rotate_tokens_f32)(x, n, positions, shape);
}
void dispatch(double* x, size_t n, const int32_t* positions, const RopeShape<double>& shape) {
  HWY_DYNAMIC_DISPATCH(rotate_tokens_f64)(x, n, positions, shape);
}

}  // namespace

template <class T>
void rotate(ThreadPool& pool, T* x, size_t n_tokens, const int32_t* positions, const RopeShape<T>& shape) {
  const size_t n_cols = shape.n_heads * shape.head_dim;
  run_in_runs(pool, n_tokens, n_cols, [&](size_t first, size_t count) {
    dispatch(x + first * n_cols, count, positions + first, shape);
  });
}

template void rotate<float>(ThreadPool&, float*, size_t, const int32_t*, const RopeShape<float>&);
template void rotate<double>(ThreadPool&, double*, size_t, const int32_t*, const RopeShape<double>&);

}  // namespace logitgate
#endif  // HWY_ONCE
