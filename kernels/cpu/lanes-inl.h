// Sixteen fixed lanes: the unit in which every dot product of the CPU backend is summed.
// Contract: element j of a sum belongs to lane j mod 16, a lane adds its elements in rising order by FMA, and the lanes
// are added as the tree i + (i+8), i + (i+4), i + (i+2), i + (i+1), whatever the width of a vector. Included once
// for each SIMD level, from files that use hwy/foreach_target.h.
#if defined(LOGITGATE_KERNELS_CPU_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOGITGATE_KERNELS_CPU_LANES_INL_H_
#undef LOGITGATE_KERNELS_CPU_LANES_INL_H_
#else
#define LOGITGATE_KERNELS_CPU_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

// Before a loop of fixed length over vectors: unrolled whole, so that arrays of vectors live in registers.
#undef LOGITGATE_UNROLL
#define LOGITGATE_UNROLL HWY_UNROLL(32)

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using VecTag = hn::CappedTag<T, 16>;
template <class T>
using Vec = hn::Vec<VecTag<T>>;
template <class T>
constexpr size_t kLanes = HWY_LANES(T) < 16 ? HWY_LANES(T) : 16;  // elements of one vector
template <class T>
constexpr size_t kVecs = 16 / kLanes<T>;  // vectors that make sixteen lanes

template <class T>
struct Lanes16 {
  Vec<T> v[kVecs<T>];
};

template <class T>
HWY_INLINE Lanes16<T> zero16() {
  Lanes16<T> r;
  LOGITGATE_UNROLL
  for (size_t i = 0; i < kVecs<T>; ++i) r.v[i] = hn::Zero(VecTag<T>());
  return r;
}

template <class T>
HWY_INLINE Lanes16<T> load16(const T* p) {
  Lanes16<T> r;
  LOGITGATE_UNROLL
  for (size_t i = 0; i < kVecs<T>; ++i) r.v[i] = hn::LoadU(VecTag<T>(), p + i * kLanes<T>);
  return r;
}

// The first n (< 16) elements at p, and zeros.
template <class T>
HWY_INLINE Lanes16<T> load16_tail(const T* p, size_t n) {
  T buffer[16] = {};
  std::memcpy(buffer, p, n * sizeof(T));
  return load16(buffer);
}

template <class T>
HWY_INLINE void store16(const Lanes16<T>& a, T* p) {
  LOGITGATE_UNROLL
  for (size_t i = 0; i < kVecs<T>; ++i) hn::StoreU(a.v[i], VecTag<T>(), p + i * kLanes<T>);
}

// acc + a·b, one rounding a lane
template <class T>
HWY_INLINE void multiply_add16(Lanes16<T>& acc, const Lanes16<T>& a, const Lanes16<T>& b) {
  LOGITGATE_UNROLL
  for (size_t i = 0; i < kVecs<T>; ++i) acc.v[i] = hn::MulAdd(a.v[i], b.v[i], acc.v[i]);
}

// Folds a vector of n lanes: lane i + lane i + n/2, down to one.
template <class D>
HWY_INLINE hn::TFromD<D> fold_lanes(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    return hn::GetLane(v);
  } else if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) > 16) {
    const hn::Half<D> half;
    return fold_lanes(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else if constexpr (sizeof(hn::TFromD<D>) == 4) {
    v = hn::Add(v, hn::Shuffle1032(v));
    return hn::GetLane(hn::Add(v, hn::Shuffle2301(v)));
  } else {
    (void)d;
    return hn::GetLane(hn::Add(v, hn::Shuffle01(v)));
  }
}

// The sum of the sixteen lanes, by the fixed tree.
template <class T>
HWY_INLINE T sum16(Lanes16<T> a) {
  for (size_t n = kVecs<T> / 2; n > 0; n /= 2) {
    for (size_t i = 0; i < n; ++i) a.v[i] = hn::Add(a.v[i], a.v[i + n]);
  }
  return fold_lanes(VecTag<T>(), a.v[0]);
}

// f(offset, count) over [0, n) in whole vectors, then once for the rest (count < a vector's lanes).
template <class T>
HWY_INLINE Vec<T> load_n(const T* p, size_t n) {
  return n == kLanes<T> ? hn::LoadU(VecTag<T>(), p)
                        : hn::MaskedLoad(hn::FirstN(VecTag<T>(), n), VecTag<T>(), p);
}
template <class T>
HWY_INLINE void store_n(Vec<T> v, T* p, size_t n) {
  if (n == kLanes<T>) {
    hn::StoreU(v, VecTag<T>(), p);
  } else {
    hn::BlendedStore(v, hn::FirstN(VecTag<T>(), n), VecTag<T>(), p);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();
#endif  // LOGITGATE_KERNELS_CPU_LANES_INL_H_
