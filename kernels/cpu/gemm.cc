// The matrix product of Phase::prefill: packed panels of tokens, blocks of dequantised weights, tiles in registers.
// Contract: see gemm.h. A task is a block of weight rows with some of the panels; it keeps its results in scratch while it
// walks the blocks of i, so that every element stays one chain.
#include "kernels/cpu/gemm.h"

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cc"
#include <hwy/foreach_target.h>
// after foreach_target
#include "kernels/cpu/gemm_block.h"
#include "kernels/cpu/panel-inl.h"
#include "kernels/cpu/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {

// Weights [first, first + n) of n_rows rows as T, the rows kWeightStride apart.
template <class T>
HWY_INLINE void load_block(const GemmBlock<T>& b, size_t first, size_t n, T* out) {
  const bool read = with_reader<T>(b.type, [&](auto reader) HWY_ATTR {
    for (size_t r = 0; r < b.n_rows; ++r) {
      read_weights<decltype(reader), T>(b.rows + r * b.row_bytes, first, n, out + r * kWeightStride);
    }
  });
  if (read) return;
  const WeightTypeInfo& info = weight_type_info(b.type);
  float buffer[kBlockK];
  for (size_t r = 0; r < b.n_rows; ++r) {
    info.dequantize_row(b.rows + r * b.row_bytes + first / info.block_size * info.block_bytes, buffer, n);
    for (size_t i = 0; i < n; ++i) out[r * kWeightStride + i] = static_cast<T>(buffer[i]);
  }
}

// What comes after panel p of the weights [first, first + n): the next panel's part, and some rows of the next block of weights.
template <class T>
HWY_INLINE Ahead after_panel(const GemmBlock<T>& b, size_t first, size_t n, size_t p, size_t n_panels) {
  Ahead ahead;
  const size_t next = first + n;
  const bool last_panel = p + 1 == n_panels;
  if (last_panel && next == b.n_in) return ahead;
  const T* panel =
      last_panel ? b.panels + next * kPanel<T> : b.panels + ((p + 1) * b.n_in + first) * kPanel<T>;
  ahead.panel = reinterpret_cast<const std::byte*>(panel);
  ahead.panel_bytes = HWY_MIN(n, b.n_in - (last_panel ? next : first)) * kPanel<T> * sizeof(T);
  const size_t begin = b.row_bytes * next / b.n_in;
  const size_t first_row = b.n_rows * p / n_panels;
  ahead.rows = b.rows + first_row * b.row_bytes + begin;
  ahead.row_stride = b.row_bytes;
  ahead.row_bytes = b.row_bytes * HWY_MIN(next + kBlockK, b.n_in) / b.n_in - begin;
  ahead.n_rows = b.n_rows * (p + 1) / n_panels - first_row;
  return ahead;
}

template <class T>
void multiply_block(const GemmBlock<T>& b) {
  T* weights = b.scratch;
  T* results = b.scratch + kBlockRows * kWeightStride;
  const size_t n_panels = (b.n_tokens + kPanel<T> - 1) / kPanel<T>;
  for (size_t first = 0; first < b.n_in; first += kBlockK) {
    const size_t n = HWY_MIN(kBlockK, b.n_in - first);
    load_block(b, first, n, weights);
    for (size_t p = 0; p < n_panels; ++p) {
      const T* panel = b.panels + (p * b.n_in + first) * kPanel<T>;
      const size_t n_lanes = HWY_MIN(kPanel<T>, b.n_tokens - p * kPanel<T>);
      T* c = results + p * kBlockRows * kPanel<T>;
      multiply_panel<T>(weights, kWeightStride, 1, b.n_rows, panel, n, c, n_lanes, first == 0,
                        after_panel(b, first, n, p, n_panels));
      if (first + n == b.n_in) {
        transpose<T, false>(c, kPanel<T>, b.n_rows, n_lanes, b.y + p * kPanel<T> * b.y_stride, b.y_stride);
      }
    }
  }
}

// Elements [first, first + n) of up to kPanel rows of x into the panel; lanes after n_tokens become zeros.
template <class T>
void pack_panel(const T* x, size_t n_in, size_t n_tokens, size_t first, size_t n, T* panel) {
  transpose<T, true>(x + first, n_in, n_tokens, n, panel + first * kPanel<T>, kPanel<T>);
  for (size_t i = first; n_tokens < kPanel<T> && i < first + n; ++i) {
    std::memset(panel + i * kPanel<T> + n_tokens, 0, (kPanel<T> - n_tokens) * sizeof(T));
  }
}

void multiply_block_f32(const GemmBlock<float>& b) { multiply_block<float>(b); }
void multiply_block_f64(const GemmBlock<double>& b) { multiply_block<double>(b); }
void pack_panel_f32(const float* x, size_t n_in, size_t n_tokens, size_t first, size_t n, float* panel) {
  pack_panel<float>(x, n_in, n_tokens, first, n, panel);
}
void pack_panel_f64(const double* x, size_t n_in, size_t n_tokens, size_t first, size_t n, double* panel) {
  pack_panel<double>(x, n_in, n_tokens, first, n, panel);
}

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "kernels/cpu/faults.h"

namespace logitgate {
namespace {

HWY_EXPORT(multiply_block_f32);
HWY_EXPORT(multiply_block_f64);
HWY_EXPORT(pack_panel_f32);
HWY_EXPORT(pack_panel_f64);

void multiply(const GemmBlock<float>& b) { HWY_DYNAMIC_DISPATCH(multiply_block_f32)(b); }
void multiply(const GemmBlock<double>& b) { HWY_DYNAMIC_DISPATCH(multiply_block_f64)(b); }
void pack(const float* x, size_t n_in, size_t n_tokens, size_t first, size_t n, float* panel) {
  HWY_DYNAMIC_DISPATCH(pack_panel_f32)(x, n_in, n_tokens, first, n, panel);
}
void pack(const double* x, size_t n_in, size_t n_tokens, size_t first, size_t n, double* panel) {
  HWY_DYNAMIC_DISPATCH(pack_panel_f64)(x, n_in, n_tokens, first, n, panel);
}

constexpr size_t div_up(size_t a, size_t b) { return (a + b - 1) / b; }

template <class T>
T* pack_tokens(ThreadPool& pool, GemmScratch& scratch, const T* x, size_t n_tokens, size_t n_in) {
  const size_t n_panels = div_up(n_tokens, kPanel<T>);
  const size_t n_parts = div_up(n_in, kBlockK);
  T* panels = scratch.panels.get<T>(n_panels * kPanel<T> * n_in);
  pool.run(n_panels * n_parts, [&](size_t task, size_t) {
    const size_t p = task / n_parts;
    const size_t first = task % n_parts * kBlockK;
    pack(x + p * kPanel<T> * n_in, n_in, std::min(kPanel<T>, n_tokens - p * kPanel<T>), first,
         std::min(kBlockK, n_in - first), panels + p * kPanel<T> * n_in);
  });
  if (fault_planted("gemm") && n_in > 1) {  // the last column of weights meets the last but one of x
    for (size_t p = 0; p < n_panels; ++p) {
      T* end = panels + (p + 1) * kPanel<T> * n_in;
      std::copy(end - 2 * kPanel<T>, end - kPanel<T>, end - kPanel<T>);
    }
  }
  return panels;
}

// One pass: at most kBlockPanels panels of tokens with all weights.
template <class T>
void multiply_tokens(ThreadPool& pool, GemmScratch& scratch, const Weight& w, const T* panels,
                     size_t n_tokens, T* y) {
  const WeightTypeInfo& info = weight_type_info(w.type);
  const size_t n_in = static_cast<size_t>(w.n_in);
  const size_t n_out = static_cast<size_t>(w.n_out);
  const size_t row_bytes = n_in / info.block_size * info.block_bytes;
  const size_t n_panels = div_up(n_tokens, kPanel<T>);
  // Blocks of equal size, as many as make whole rounds of the threads.
  const size_t n_threads = static_cast<size_t>(pool.n_threads());
  const size_t n_blocks = div_up(n_out, kBlockRows * n_threads) * n_threads;
  const size_t block_rows = div_up(div_up(n_out, n_blocks), 4) * 4;
  const size_t n_row_blocks = div_up(n_out, block_rows);
  // Where there are more threads than blocks of rows, the panels are shared out too.
  const size_t n_shares = std::clamp(n_threads / n_row_blocks, size_t{1}, n_panels);
  const size_t panels_of_share = div_up(n_panels, n_shares);
  const size_t tokens_of_share = panels_of_share * kPanel<T>;
  pool.run(n_row_blocks * div_up(n_panels, panels_of_share), [&](size_t task, size_t thread) {
    const size_t first_row = task % n_row_blocks * block_rows;
    const size_t first_token = task / n_row_blocks * tokens_of_share;
    GemmBlock<T> b;
    b.type = w.type;
    b.rows = static_cast<const std::byte*>(w.data) + first_row * row_bytes;
    b.row_bytes = row_bytes;
    b.n_rows = std::min(block_rows, n_out - first_row);
    b.n_in = n_in;
    b.panels = panels + first_token * n_in;
    b.n_tokens = std::min(tokens_of_share, n_tokens - first_token);
    b.y = y + first_token * n_out + first_row;
    b.y_stride = n_out;
    b.scratch = scratch.of_threads[thread].get<T>(kBlockRows * (kWeightStride + kBlockPanels * kPanel<T>));
    multiply(b);
  });
}

}  // namespace

template <class T>
void gemm(ThreadPool& pool, GemmScratch& scratch, const Weight& w, const T* x, size_t n_tokens, T* y) {
  const size_t n_in = static_cast<size_t>(w.n_in);
  const size_t n_out = static_cast<size_t>(w.n_out);
  scratch.of_threads.resize(static_cast<size_t>(pool.n_threads()));
  for (size_t t = 0; t < n_tokens; t += kBlockPanels * kPanel<T>) {
    const size_t n = std::min(kBlockPanels * kPanel<T>, n_tokens - t);
    const T* panels = pack_tokens(pool, scratch, x + t * n_in, n, n_in);
    multiply_tokens(pool, scratch, w, panels, n, y + t * n_out);
  }
}

template void gemm<float>(ThreadPool&, GemmScratch&, const Weight&, const float*, size_t, float*);
template void gemm<double>(ThreadPool&, GemmScratch&, const Weight&, const double*, size_t, double*);

}  // namespace logitgate
#endif  // HWY_ONCE
