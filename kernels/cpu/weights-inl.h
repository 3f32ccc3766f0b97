// Weights as sixteen lanes of float or double, straight from the file's bytes.
// Contract: values are the exact dequantised ones (each fits in float). A Reader of a type has kStep, the weights that
// one read() gives (a multiple of 16), offset(j) the bytes before weight j, read(row, j, lanes) for j a multiple of kStep with j + kStep <= n_in, and
// read_tail for the last n < kStep weights, with zeros after them. Included once for each SIMD level.
#if defined(LOGITGATE_KERNELS_CPU_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOGITGATE_KERNELS_CPU_WEIGHTS_INL_H_
#undef LOGITGATE_KERNELS_CPU_WEIGHTS_INL_H_
#else
#define LOGITGATE_KERNELS_CPU_WEIGHTS_INL_H_
#endif

#include "formats/quant/weight_type.h"
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {

template <class T>
using FloatTag = hn::Rebind<float, VecTag<T>>;  // as many floats as VecTag<T> has lanes

template <class T>
HWY_INLINE Vec<T> from_float(hn::Vec<FloatTag<T>> v) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return v;
  } else {
    return hn::PromoteTo(VecTag<T>(), v);
  }
}

// Types whose block is one weight: load one vector of them as floats.
template <class Element, class T>
struct PlainReader {
  static constexpr size_t kStep = 16;
  static HWY_INLINE size_t offset(size_t j) { return j * sizeof(Element); }
  static HWY_INLINE void read(const std::byte* row, size_t j, Lanes16<T>* lanes) {
    const Element* p = reinterpret_cast<const Element*>(row) + j;
    LOGITGATE_UNROLL
    for (size_t i = 0; i < kVecs<T>; ++i) lanes[0].v[i] = vector(p + i * kLanes<T>);
  }
  static HWY_INLINE void read_tail(const std::byte* row, size_t j, size_t n, Lanes16<T>* lanes) {
    alignas(64) Element buffer[16] = {};
    std::memcpy(static_cast<void*>(buffer), row + j * sizeof(Element), n * sizeof(Element));
    read(reinterpret_cast<const std::byte*>(buffer), 0, lanes);
  }

 private:
  static HWY_INLINE Vec<T> vector(const Element* p) {
    const FloatTag<T> df;
    const hn::Rebind<Element, decltype(df)> de;
    if constexpr (std::is_same_v<Element, T>) {
      return hn::LoadU(VecTag<T>(), p);
    } else if constexpr (std::is_same_v<Element, float>) {
      return from_float<T>(hn::LoadU(df, p));
    } else {
      return from_float<T>(hn::PromoteTo(df, hn::LoadU(de, p)));
    }
  }
};

// Q8_0: blocks of {f16 d; int8 q[32]}, weight = d · q, exact in float (11 + 7 significant bits).
template <class T>
struct Q8_0Reader {
  static constexpr size_t kStep = 32;
  static constexpr size_t kBlockBytes = 34;
  static HWY_INLINE size_t offset(size_t j) { return j / 32 * kBlockBytes; }
  static HWY_INLINE void read(const std::byte* row, size_t j, Lanes16<T>* lanes) {
    const std::byte* block = row + offset(j);
    const FloatTag<T> df;
    const auto d = hn::Set(df, scale(block));
    const auto* q = reinterpret_cast<const int8_t*>(block + 2);
    LOGITGATE_UNROLL
    for (size_t half = 0; half < 2; ++half) {
      LOGITGATE_UNROLL
      for (size_t i = 0; i < kVecs<T>; ++i) {
        const hn::Rebind<int8_t, decltype(df)> d8;
        const hn::Rebind<int32_t, decltype(df)> d32;
        const auto q32 = hn::PromoteTo(d32, hn::LoadU(d8, q + half * 16 + i * kLanes<T>));
        lanes[half].v[i] = from_float<T>(hn::Mul(d, hn::ConvertTo(df, q32)));
      }
    }
  }
  // Rows are whole blocks, so there is no tail.
  static HWY_INLINE void read_tail(const std::byte*, size_t, size_t, Lanes16<T>* lanes) {
    lanes[0] = lanes[1] = zero16<T>();
  }

 private:
  static HWY_INLINE float scale(const std::byte* block) {
    hwy::float16_t d;
    std::memcpy(static_cast<void*>(&d), block, sizeof(d));
    const hn::CappedTag<float, 1> d1;
    return hn::GetLane(hn::PromoteTo(d1, hn::Load(hn::Rebind<hwy::float16_t, decltype(d1)>(), &d)));
  }
};

// f(Reader()) for the reader of `type`; false for a type without one, whose rows come by way of dequantize_row.
template <class T, class F>
HWY_INLINE bool with_reader(WeightType type, F&& f) {
  switch (type) {
    case WeightType::F32:
      f(PlainReader<float, T>());
      return true;
    case WeightType::F16:
      f(PlainReader<hwy::float16_t, T>());
      return true;
    case WeightType::BF16:
      f(PlainReader<hwy::bfloat16_t, T>());
      return true;
    case WeightType::Q8_0:
      f(Q8_0Reader<T>());
      return true;
    default:
      return false;
  }
}

// Weights j…j+n of a row to out; j is a multiple of the reader's step.
template <class Reader, class T>
HWY_INLINE void read_weights(const std::byte* row, size_t j, size_t n, T* out) {
  Lanes16<T> lanes[Reader::kStep / 16];
  size_t i = 0;
  for (; i + Reader::kStep <= n; i += Reader::kStep) {
    Reader::read(row, j + i, lanes);
    LOGITGATE_UNROLL
    for (size_t s = 0; s < Reader::kStep / 16; ++s) store16(lanes[s], out + i + s * 16);
  }
  if (i < n) {
    alignas(64) T buffer[Reader::kStep];
    Reader::read_tail(row, j + i, n - i, lanes);
    LOGITGATE_UNROLL
    for (size_t s = 0; s < Reader::kStep / 16; ++s) store16(lanes[s], buffer + s * 16);
    std::memcpy(out + i, buffer, (n - i) * sizeof(T));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();
#endif  // LOGITGATE_KERNELS_CPU_WEIGHTS_INL_H_
