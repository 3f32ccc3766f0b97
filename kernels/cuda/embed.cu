// Rows picked by index: the embedding of tokens, dequantised, and rows of activations.
// Contract: kernels/cuda/ops.h; one block a row, bound by memory.
#include "kernels/cuda/check.h"
#include "kernels/cuda/weight_reader.cuh"

namespace logitgate::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void probe_kernel() {}

template <class T>
__global__ void __launch_bounds__(kThreads)
    embed_kernel(T* __restrict__ x, WeightView w, const int32_t* __restrict__ tokens, T scale) {
  const int64_t row = tokens[blockIdx.x];
  T* const out = x + static_cast<int64_t>(blockIdx.x) * w.n_in;
  for (int64_t i = threadIdx.x; i < w.n_in; i += kThreads)
    out[i] = mul_rn(scale, static_cast<T>(read_weight(w, row, i)));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(T* __restrict__ y, const T* __restrict__ x, const int32_t* __restrict__ rows,
                       int64_t n_cols) {
  const T* const from = x + rows[blockIdx.x] * n_cols;
  T* const to = y + blockIdx.x * n_cols;
  for (int64_t i = threadIdx.x; i < n_cols; i += kThreads) to[i] = from[i];
}

}  // namespace

cudaError_t probe_kernel_image() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, probe_kernel);
}

template <class T>
void embed(T* x, const WeightView& w, const BatchView& batch, T scale, cudaStream_t stream) {
  if (batch.n_tokens == 0) return;
  embed_kernel<T><<<static_cast<unsigned>(batch.n_tokens), kThreads, 0, stream>>>(x, w, batch.tokens, scale);
  check_launch("embed");
}

template <class T>
void gather_rows(T* y, const T* x, const int32_t* rows, int64_t n_rows, int64_t n_cols, cudaStream_t stream) {
  if (n_rows == 0) return;
  gather_rows_kernel<T><<<static_cast<unsigned>(n_rows), kThreads, 0, stream>>>(y, x, rows, n_cols);
  check_launch("gather_rows");
}

template void embed<float>(float*, const WeightView&, const BatchView&, float, cudaStream_t);
template void embed<double>(double*, const WeightView&, const BatchView&, double, cudaStream_t);
template void gather_rows<float>(float*, const float*, const int32_t*, int64_t, int64_t, cudaStream_t);
template void gather_rows<double>(double*, const double*, const int32_t*, int64_t, int64_t, cudaStream_t);

}  // namespace logitgate::cuda
