// Dot products of a tile of rows with a tile of vectors, in sixteen fixed lanes each.
// Contract: out[t·out_stride + r] = Σ_j row_r[j] · x_t[j] for every r and t; the bits of one product do not depend on
// the tile it is computed in. `rows` are bytes read by Reader, row_stride apart; x is [n_tokens] vectors, x_stride
// elements apart. Included once for each SIMD level.
#if defined(LOGITGATE_KERNELS_CPU_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOGITGATE_KERNELS_CPU_DOT_INL_H_
#undef LOGITGATE_KERNELS_CPU_DOT_INL_H_
#else
#define LOGITGATE_KERNELS_CPU_DOT_INL_H_
#endif

#include "kernels/cpu/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {

// Rows and tokens of a tile, so that accumulators fit the registers (32 of AVX-512, 16 of AVX2) and there are enough
// chains to hide the latency of FMA.
template <class T>
constexpr size_t kDotRows = kVecs<T> == 1   ? 4
                            : kVecs<T> == 2 ? 4
                                            : 2;
template <class T>
constexpr size_t kDotRowsOfMany = kVecs<T> == 1   ? 4
                                  : kVecs<T> == 2 ? 2
                                                  : 1;
template <class T>
constexpr size_t kDotTokens = kVecs<T> == 1 ? 4 : 2;

template <class Reader, class T, size_t kRows, size_t kTokens>
HWY_INLINE void dot_tile(const std::byte* rows, size_t row_stride, const T* x, size_t x_stride, size_t n,
                         T* out, size_t out_stride) {
  constexpr size_t kParts = Reader::kStep / 16;
  Lanes16<T> acc[kRows][kTokens];
  LOGITGATE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    LOGITGATE_UNROLL
    for (size_t t = 0; t < kTokens; ++t) acc[r][t] = zero16<T>();
  }
  size_t j = 0;
  for (; j + Reader::kStep <= n; j += Reader::kStep) {
    Lanes16<T> xs[kTokens][kParts];
    LOGITGATE_UNROLL
    for (size_t t = 0; t < kTokens; ++t) {
      LOGITGATE_UNROLL
      for (size_t s = 0; s < kParts; ++s) xs[t][s] = load16(x + t * x_stride + j + s * 16);
    }
    LOGITGATE_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      // The same place of the next tile, which follows in memory: rows are too short for the processor to foresee it.
      __builtin_prefetch(rows + (r + kRows) * row_stride + Reader::offset(j), 0, 2);
      Lanes16<T> w[kParts];
      Reader::read(rows + r * row_stride, j, w);
      LOGITGATE_UNROLL
      for (size_t t = 0; t < kTokens; ++t) {
        LOGITGATE_UNROLL
        for (size_t s = 0; s < kParts; ++s) multiply_add16(acc[r][t], w[s], xs[t][s]);
      }
    }
  }
  if (j < n) {
    LOGITGATE_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      Lanes16<T> w[kParts];
      Reader::read_tail(rows + r * row_stride, j, n - j, w);
      LOGITGATE_UNROLL
      for (size_t t = 0; t < kTokens; ++t)
        multiply_add16(acc[r][t], w[0], load16_tail(x + t * x_stride + j, n - j));
    }
  }
  LOGITGATE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    LOGITGATE_UNROLL
    for (size_t t = 0; t < kTokens; ++t) out[t * out_stride + r] = sum16(acc[r][t]);
  }
}

template <class Reader, class T, size_t kTokens>
HWY_INLINE void dot_rows(const std::byte* rows, size_t row_stride, size_t n_rows, const T* x, size_t x_stride,
                         size_t n, T* out, size_t out_stride) {
  constexpr size_t kRows = kTokens == 1 ? kDotRows<T> : kDotRowsOfMany<T>;
  size_t r = 0;
  for (; r + kRows <= n_rows; r += kRows) {
    dot_tile<Reader, T, kRows, kTokens>(rows + r * row_stride, row_stride, x, x_stride, n, out + r,
                                        out_stride);
  }
  for (; r < n_rows; ++r) {
    dot_tile<Reader, T, 1, kTokens>(rows + r * row_stride, row_stride, x, x_stride, n, out + r, out_stride);
  }
}

// All rows with all tokens. Rows are taken in groups small enough to stay in the first-level cache while the tokens pass.
template <class Reader, class T>
HWY_INLINE void dot_products(const std::byte* rows, size_t row_stride, size_t n_rows, const T* x,
                             size_t x_stride, size_t n_tokens, size_t n, T* out, size_t out_stride) {
  if (n_tokens == 1) {
    dot_rows<Reader, T, 1>(rows, row_stride, n_rows, x, x_stride, n, out, out_stride);
    return;
  }
  constexpr size_t kGroup = 2 * kDotRows<T>;
  for (size_t r = 0; r < n_rows; r += kGroup) {
    const size_t n_group = HWY_MIN(kGroup, n_rows - r);
    const std::byte* group = rows + r * row_stride;
    size_t t = 0;
    for (; t + kDotTokens<T> <= n_tokens; t += kDotTokens<T>) {
      dot_rows<Reader, T, kDotTokens<T>>(group, row_stride, n_group, x + t * x_stride, x_stride, n,
                                         out + t * out_stride + r, out_stride);
    }
    for (; t < n_tokens; ++t) {
      dot_rows<Reader, T, 1>(group, row_stride, n_group, x + t * x_stride, x_stride, n,
                             out + t * out_stride + r, out_stride);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();
#endif  // LOGITGATE_KERNELS_CPU_DOT_INL_H_
