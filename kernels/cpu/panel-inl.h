// The register-blocked kernel under the prefill GEMM and the prefill attention.
// Equation: c[r, l] += Σ_k w[r, k] · x[k, l], one chain of FMA over rising k for each (r, l).
// Layout: x is a panel [n_k, kPanel] of kPanel lanes (tokens or queries) side by side, c [n_rows, kPanel]; w is read one element at a time at
// r·w_row + k·w_k, so that a matrix and its transpose both serve. The bits of c[r, l] depend on row r and lane l alone.
// Cost: for each k a register tile of kTileRows × 2 vectors costs 2 · kTileRows FMA, 2 vector loads and kTileRows broadcasts.
// Included once for each SIMD level.
#if defined(LOGITGATE_KERNELS_CPU_PANEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOGITGATE_KERNELS_CPU_PANEL_INL_H_
#undef LOGITGATE_KERNELS_CPU_PANEL_INL_H_
#else
#define LOGITGATE_KERNELS_CPU_PANEL_INL_H_
#endif

#include "kernels/cpu/lanes-inl.h"
#include "kernels/cpu/panel.h"

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {

// 32 registers hold 12 × 2 accumulators, 16 hold 6 × 2.
constexpr size_t kTileRows = HWY_TARGET == HWY_AVX3 ? 12 : 6;

template <class T, size_t kRows, size_t kVectors>
HWY_INLINE void multiply_tile(const T* HWY_RESTRICT w, size_t w_row, size_t w_k, const T* HWY_RESTRICT x,
                              size_t n_k, T* HWY_RESTRICT c) {
  const VecTag<T> d;
  Vec<T> acc[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::LoadU(d, c + r * kPanel<T> + v * kLanes<T>);
  }
  for (size_t k = 0; k < n_k; ++k) {
    Vec<T> xs[kVectors];
    for (size_t v = 0; v < kVectors; ++v) xs[v] = hn::LoadU(d, x + k * kPanel<T> + v * kLanes<T>);
    for (size_t r = 0; r < kRows; ++r) {
      const Vec<T> ws = hn::Set(d, w[r * w_row + k * w_k]);
      for (size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(ws, xs[v], acc[r][v]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(acc[r][v], d, c + r * kPanel<T> + v * kLanes<T>);
  }
}

// As multiply_tile, but lane l takes part in step k only where first_k + k <= last[l].
template <class T, size_t kRows, size_t kVectors>
HWY_INLINE void multiply_tile_bounded(const T* HWY_RESTRICT w, size_t w_row, size_t w_k,
                                      const T* HWY_RESTRICT x, size_t n_k, T* HWY_RESTRICT c,
                                      const T* HWY_RESTRICT last, T first_k) {
  const VecTag<T> d;
  Vec<T> acc[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::LoadU(d, c + r * kPanel<T> + v * kLanes<T>);
  }
  for (size_t k = 0; k < n_k; ++k) {
    const Vec<T> position = hn::Set(d, first_k + static_cast<T>(k));
    for (size_t v = 0; v < kVectors; ++v) {
      const auto takes_part = hn::Le(position, hn::LoadU(d, last + v * kLanes<T>));
      const Vec<T> xs = hn::LoadU(d, x + k * kPanel<T> + v * kLanes<T>);
      for (size_t r = 0; r < kRows; ++r) {
        const Vec<T> sum = hn::MulAdd(hn::Set(d, w[r * w_row + k * w_k]), xs, acc[r][v]);
        acc[r][v] = hn::IfThenElse(takes_part, sum, acc[r][v]);
      }
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) hn::StoreU(acc[r][v], d, c + r * kPanel<T> + v * kLanes<T>);
  }
}

// f(rows, first_row) with rows a compile-time constant, over tiles that cover n_rows.
template <class F>
HWY_INLINE void for_row_tiles(size_t n_rows, F&& f) {
  size_t r = 0;
  for (; r + kTileRows <= n_rows; r += kTileRows) f(std::integral_constant<size_t, kTileRows>(), r);
  for (; r + 4 <= n_rows; r += 4) f(std::integral_constant<size_t, 4>(), r);
  for (; r < n_rows; ++r) f(std::integral_constant<size_t, 1>(), r);
}

// f(vectors, first_lane) likewise, over vectors that cover n_lanes (the last may reach past it, within the panel).
template <class T, class F>
HWY_INLINE void for_lane_tiles(size_t n_lanes, F&& f) {
  size_t l = 0;
  for (; l + kLanes<T> < n_lanes; l += 2 * kLanes<T>) f(std::integral_constant<size_t, 2>(), l);
  if (l < n_lanes) f(std::integral_constant<size_t, 1>(), l);
}

template <class T>
HWY_INLINE void multiply_panel(const T* w, size_t w_row, size_t w_k, size_t n_rows, const T* x, size_t n_k,
                               T* c, size_t n_lanes) {
  for_lane_tiles<T>(n_lanes, [&](auto vectors, size_t l) HWY_ATTR {
    for_row_tiles(n_rows, [&](auto rows, size_t r) HWY_ATTR {
      multiply_tile<T, rows, vectors>(w + r * w_row, w_row, w_k, x + l, n_k, c + r * kPanel<T> + l);
    });
  });
}

template <class T>
HWY_INLINE void multiply_panel_bounded(const T* w, size_t w_row, size_t w_k, size_t n_rows, const T* x,
                                       size_t n_k, T* c, size_t n_lanes, const T* last, T first_k) {
  for_lane_tiles<T>(n_lanes, [&](auto vectors, size_t l) HWY_ATTR {
    for_row_tiles(n_rows, [&](auto rows, size_t r) HWY_ATTR {
      multiply_tile_bounded<T, rows, vectors>(w + r * w_row, w_row, w_k, x + l, n_k, c + r * kPanel<T> + l,
                                              last + l, first_k);
    });
  });
}

// to[j·to_stride + i] = from[i·from_stride + j] for i < n_rows, j < n_cols, in 4 × 4 (float) or 2 × 2 (double) squares.
template <class T>
HWY_INLINE void transpose(const T* HWY_RESTRICT from, size_t from_stride, size_t n_rows, size_t n_cols,
                          T* HWY_RESTRICT to, size_t to_stride) {
  const hn::CappedTag<T, 16 / sizeof(T)> d;
  constexpr size_t kSquare = 16 / sizeof(T);
  size_t i = 0;
  for (; i + kSquare <= n_rows; i += kSquare) {
    size_t j = 0;
    for (; j + kSquare <= n_cols; j += kSquare) {
      const T* f = from + i * from_stride + j;
      T* t = to + j * to_stride + i;
      const auto a = hn::LoadU(d, f);
      const auto b = hn::LoadU(d, f + from_stride);
      if constexpr (kSquare == 2) {
        hn::StoreU(hn::InterleaveLower(d, a, b), d, t);
        hn::StoreU(hn::InterleaveUpper(d, a, b), d, t + to_stride);
      } else {
        const hn::RepartitionToWide<hn::RebindToUnsigned<decltype(d)>> d2;
        const auto e = hn::LoadU(d, f + 2 * from_stride);
        const auto g = hn::LoadU(d, f + 3 * from_stride);
        const auto ab0 = hn::BitCast(d2, hn::InterleaveLower(d, a, b)),
                   eg0 = hn::BitCast(d2, hn::InterleaveLower(d, e, g));
        const auto ab1 = hn::BitCast(d2, hn::InterleaveUpper(d, a, b)),
                   eg1 = hn::BitCast(d2, hn::InterleaveUpper(d, e, g));
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, ab0, eg0)), d, t);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, ab0, eg0)), d, t + to_stride);
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, ab1, eg1)), d, t + 2 * to_stride);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, ab1, eg1)), d, t + 3 * to_stride);
      }
    }
    for (; j < n_cols; ++j) {
      for (size_t s = 0; s < kSquare; ++s) to[j * to_stride + i + s] = from[(i + s) * from_stride + j];
    }
  }
  for (; i < n_rows; ++i) {
    for (size_t j = 0; j < n_cols; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();
#endif  // LOGITGATE_KERNELS_CPU_PANEL_INL_H_
