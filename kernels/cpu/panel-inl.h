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

// One tile's part of Ahead: two streams, each asked for `step` bytes further on at every k.
struct TileAhead {
  const std::byte* panel;
  size_t panel_step;
  const std::byte* row;
  size_t row_step;
};

// The part of tile i of n_tiles that take n_k steps; `somewhere` is any address, for a stream that has ended.
HWY_INLINE TileAhead part_of(const Ahead& ahead, size_t i, size_t n_tiles, size_t n_k,
                             const void* somewhere) {
  const auto* idle = static_cast<const std::byte*>(somewhere);
  const size_t share = ahead.panel_bytes / n_tiles;
  const bool row = i < ahead.n_rows;
  return {share > 0 ? ahead.panel + i * share : idle, share / n_k,
          row ? ahead.rows + i * ahead.row_stride : idle, row ? ahead.row_bytes / n_k : 0};
}

template <class T, size_t kRows, size_t kVectors>
HWY_INLINE void multiply_tile(const T* HWY_RESTRICT w, size_t w_row, size_t w_k, const T* HWY_RESTRICT x,
                              size_t n_k, T* HWY_RESTRICT c, bool fresh, const TileAhead& ahead) {
  const VecTag<T> d;
  Vec<T> acc[kRows][kVectors];
  LOGITGATE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    LOGITGATE_UNROLL
    for (size_t v = 0; v < kVectors; ++v)
      acc[r][v] = fresh ? hn::Zero(d) : hn::LoadU(d, c + r * kPanel<T> + v * kLanes<T>);
  }
  for (size_t k = 0; k < n_k; ++k) {
    __builtin_prefetch(ahead.panel + k * ahead.panel_step, 0, 2);
    __builtin_prefetch(ahead.row + k * ahead.row_step, 0, 2);
    Vec<T> xs[kVectors];
    LOGITGATE_UNROLL
    for (size_t v = 0; v < kVectors; ++v) xs[v] = hn::LoadU(d, x + k * kPanel<T> + v * kLanes<T>);
    LOGITGATE_UNROLL
    for (size_t r = 0; r < kRows; ++r) {
      const Vec<T> ws = hn::Set(d, w[r * w_row + k * w_k]);
      LOGITGATE_UNROLL
      for (size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(ws, xs[v], acc[r][v]);
    }
  }
  LOGITGATE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    LOGITGATE_UNROLL
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
  LOGITGATE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    LOGITGATE_UNROLL
    for (size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::LoadU(d, c + r * kPanel<T> + v * kLanes<T>);
  }
  for (size_t k = 0; k < n_k; ++k) {
    const Vec<T> position = hn::Set(d, first_k + static_cast<T>(k));
    LOGITGATE_UNROLL
    for (size_t v = 0; v < kVectors; ++v) {
      const auto takes_part = hn::Le(position, hn::LoadU(d, last + v * kLanes<T>));
      const Vec<T> xs = hn::LoadU(d, x + k * kPanel<T> + v * kLanes<T>);
      LOGITGATE_UNROLL
      for (size_t r = 0; r < kRows; ++r) {
        const Vec<T> sum = hn::MulAdd(hn::Set(d, w[r * w_row + k * w_k]), xs, acc[r][v]);
        acc[r][v] = hn::IfThenElse(takes_part, sum, acc[r][v]);
      }
    }
  }
  LOGITGATE_UNROLL
  for (size_t r = 0; r < kRows; ++r) {
    LOGITGATE_UNROLL
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

// c is taken for zero where `fresh`. n_k > 0, n_lanes > 0.
template <class T>
HWY_INLINE void multiply_panel(const T* w, size_t w_row, size_t w_k, size_t n_rows, const T* x, size_t n_k,
                               T* c, size_t n_lanes, bool fresh, const Ahead& ahead = {}) {
  const size_t n_lane_tiles = (n_lanes + 2 * kLanes<T> - 1) / (2 * kLanes<T>);
  const size_t n_tiles = (n_rows / kTileRows + n_rows % kTileRows / 4 + n_rows % 4) * n_lane_tiles;
  size_t i = 0;
  for_lane_tiles<T>(n_lanes, [&](auto vectors, size_t l) HWY_ATTR {
    for_row_tiles(n_rows, [&](auto rows, size_t r) HWY_ATTR {
      multiply_tile<T, rows, vectors>(w + r * w_row, w_row, w_k, x + l, n_k, c + r * kPanel<T> + l, fresh,
                                      part_of(ahead, i++, n_tiles, n_k, c));
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

template <class T>
constexpr size_t kSide = 16 /
                         sizeof(T);  // of the squares that are transposed in registers: 4 floats, 2 doubles

// to[j][i] = from[i][j] for i, j < kSide
template <class T>
HWY_INLINE void transpose_square(const T* const* from, T* const* to) {
  const hn::CappedTag<T, kSide<T>> d;
  const auto a = hn::LoadU(d, from[0]);
  const auto b = hn::LoadU(d, from[1]);
  if constexpr (kSide<T> == 2) {
    hn::StoreU(hn::InterleaveLower(d, a, b), d, to[0]);
    hn::StoreU(hn::InterleaveUpper(d, a, b), d, to[1]);
  } else {
    const hn::RepartitionToWide<hn::RebindToUnsigned<decltype(d)>> d2;
    const auto e = hn::LoadU(d, from[2]);
    const auto g = hn::LoadU(d, from[3]);
    const auto ab0 = hn::BitCast(d2, hn::InterleaveLower(d, a, b)),
               ab1 = hn::BitCast(d2, hn::InterleaveUpper(d, a, b));
    const auto eg0 = hn::BitCast(d2, hn::InterleaveLower(d, e, g)),
               eg1 = hn::BitCast(d2, hn::InterleaveUpper(d, e, g));
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, ab0, eg0)), d, to[0]);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, ab0, eg0)), d, to[1]);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d2, ab1, eg1)), d, to[2]);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d2, ab1, eg1)), d, to[3]);
  }
}

// to(j)[i] = from(i)[j] for i < n_rows, j < n_cols; from and to give the addresses of rows. The side whose rows lie far
// apart in memory goes slowest, a few rows of it at a time: `from` where kByRows, `to` otherwise.
template <class T, bool kByRows, class From, class To>
HWY_INLINE void transpose_rows(const From& from, size_t n_rows, size_t n_cols, const To& to) {
  constexpr size_t kStep = kSide<T>;
  const size_t square_rows = n_rows / kStep * kStep, square_cols = n_cols / kStep * kStep;
  const size_t n_outer = kByRows ? square_rows : square_cols, n_inner = kByRows ? square_cols : square_rows;
  for (size_t outer = 0; outer < n_outer; outer += kStep) {
    const T* f[kStep];
    T* t[kStep];
    LOGITGATE_UNROLL
    for (size_t s = 0; s < kStep; ++s) {
      if constexpr (kByRows) {
        f[s] = from(outer + s);
      } else {
        t[s] = to(outer + s);
      }
    }
    for (size_t inner = 0; inner < n_inner; inner += kStep) {
      const T* from_square[kStep];
      T* to_square[kStep];
      LOGITGATE_UNROLL
      for (size_t s = 0; s < kStep; ++s) {
        from_square[s] = kByRows ? f[s] + inner : from(inner + s) + outer;
        to_square[s] = kByRows ? to(inner + s) + outer : t[s] + inner;
      }
      transpose_square<T>(from_square, to_square);
    }
  }
  for (size_t i = 0; i < n_rows; ++i) {
    for (size_t j = i < square_rows ? square_cols : 0; j < n_cols; ++j) to(j)[i] = from(i)[j];
  }
}

// to[j·to_stride + i] = from[i·from_stride + j]
template <class T, bool kByRows>
HWY_INLINE void transpose(const T* from, size_t from_stride, size_t n_rows, size_t n_cols, T* to,
                          size_t to_stride) {
  transpose_rows<T, kByRows>([=](size_t i) HWY_ATTR { return from + i * from_stride; }, n_rows, n_cols,
                             [=](size_t j) HWY_ATTR { return to + j * to_stride; });
}

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();
#endif  // LOGITGATE_KERNELS_CPU_PANEL_INL_H_
