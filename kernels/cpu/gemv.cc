// The matrix product of Phase::decode: dot products straight from the file's bytes.
// Contract: see gemv.h. Rows are shared out among the threads in runs of at least a few pages.
#include "kernels/cpu/gemv.h"

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemv.cc"
#include <hwy/foreach_target.h>
// after foreach_target
#include "kernels/cpu/dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {

// Types without a reader: a few rows at a time are dequantised to floats, the exact values.
template <class T>
void gemv_dequantised(const WeightType type, const std::byte* rows, size_t row_bytes, size_t n_rows,
                      size_t n_in, const T* x, size_t n_tokens, T* y, size_t y_stride, float* buffer) {
  const WeightTypeInfo& info = weight_type_info(type);
  constexpr size_t kGroup = 8;
  for (size_t r = 0; r < n_rows; r += kGroup) {
    const size_t n_group = HWY_MIN(kGroup, n_rows - r);
    for (size_t i = 0; i < n_group; ++i)
      info.dequantize_row(rows + (r + i) * row_bytes, buffer + i * n_in, n_in);
    dot_products<PlainReader<float, T>, T>(reinterpret_cast<const std::byte*>(buffer), n_in * sizeof(float),
                                           n_group, x, n_in, n_tokens, n_in, y + r, y_stride);
  }
}

template <class T>
void gemv_rows(const WeightType type, const std::byte* rows, size_t row_bytes, size_t n_rows, size_t n_in,
               const T* x, size_t n_tokens, T* y, size_t y_stride, float* buffer) {
  const bool read = with_reader<T>(type, [&](auto reader) HWY_ATTR {
    dot_products<decltype(reader), T>(rows, row_bytes, n_rows, x, n_in, n_tokens, n_in, y, y_stride);
  });
  if (!read) gemv_dequantised(type, rows, row_bytes, n_rows, n_in, x, n_tokens, y, y_stride, buffer);
}

void gemv_rows_f32(WeightType type, const std::byte* rows, size_t row_bytes, size_t n_rows, size_t n_in,
                   const float* x, size_t n_tokens, float* y, size_t y_stride, float* buffer) {
  gemv_rows<float>(type, rows, row_bytes, n_rows, n_in, x, n_tokens, y, y_stride, buffer);
}
void gemv_rows_f64(WeightType type, const std::byte* rows, size_t row_bytes, size_t n_rows, size_t n_in,
                   const double* x, size_t n_tokens, double* y, size_t y_stride, float* buffer) {
  gemv_rows<double>(type, rows, row_bytes, n_rows, n_in, x, n_tokens, y, y_stride, buffer);
}

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "kernels/cpu/faults.h"

namespace logitgate {
namespace {

HWY_EXPORT(gemv_rows_f32);
HWY_EXPORT(gemv_rows_f64);

template <class... Args>
void dispatch(const float*, Args... args) {
  HWY_DYNAMIC_DISPATCH(gemv_rows_f32)(args...);
}
template <class... Args>
void dispatch(const double*, Args... args) {
  HWY_DYNAMIC_DISPATCH(gemv_rows_f64)(args...);
}

constexpr size_t kTaskBytesMin = size_t{1} << 16, kTaskBytesMax = size_t{1} << 22;  // of weights

}  // namespace

template <class T>
void gemv(ThreadPool& pool, std::vector<Scratch>& scratch, const Weight& w, const T* x, size_t n_tokens,
          T* y) {
  const WeightTypeInfo& info = weight_type_info(w.type);
  const size_t n_in = static_cast<size_t>(w.n_in);
  const size_t n_out = static_cast<size_t>(w.n_out);
  const size_t row_bytes = n_in / info.block_size * info.block_bytes;
  const auto* rows = static_cast<const std::byte*>(w.data);

  const size_t even_share = n_out / (static_cast<size_t>(pool.n_threads()) * 4);
  const size_t share =
      std::clamp(even_share, kTaskBytesMin / row_bytes, std::max(size_t{1}, kTaskBytesMax / row_bytes));
  const size_t rows_of_task = (std::max(share, size_t{1}) + 7) / 8 * 8;
  const size_t n_tasks = (n_out + rows_of_task - 1) / rows_of_task;
  pool.run(n_tasks, [&](size_t task, size_t thread) {
    const size_t first = task * rows_of_task;
    const size_t n_rows = std::min(rows_of_task, n_out - first);
    float* buffer = scratch[thread].get<float>(8 * n_in);
    dispatch(x, w.type, rows + first * row_bytes, row_bytes, n_rows, n_in, x, n_tokens, y + first, n_out,
             buffer);
  });
  if (fault_planted("gemv")) {
    for (size_t t = 0; t < n_tokens; ++t) y[t * n_out] *= T(1.0625);
  }
}

template void gemv<float>(ThreadPool&, std::vector<Scratch>&, const Weight&, const float*, size_t, float*);
template void gemv<double>(ThreadPool&, std::vector<Scratch>&, const Weight&, const double*, size_t, double*);

}  // namespace logitgate
#endif  // HWY_ONCE
