// SwiGLU and the residual add.
// Contract: kernels/cuda/ops.h; grid-stride, bound by memory.
#include <algorithm>

#include "kernels/cuda/check.h"
#include "kernels/cuda/math.cuh"

namespace logitgate::cuda {
namespace {

constexpr int kThreads = 256;

int grid_for(int64_t n_items) {
  return static_cast<int>(std::min<int64_t>((n_items + kThreads - 1) / kThreads, int64_t{132} * 64));
}

template <class T>
__global__ void __launch_bounds__(kThreads) swiglu_kernel(T* y, const T* gate, const T* up, int64_t n) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) {
    y[i] = swiglu_of(gate[i], up[i]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) add_kernel(T* x, const T* y, int64_t n) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride)
    x[i] = add_rn(x[i], y[i]);
}

}  // namespace

template <class T>
void swiglu(T* y, const T* gate, const T* up, int64_t n, cudaStream_t stream) {
  if (n == 0) return;
  swiglu_kernel<T><<<grid_for(n), kThreads, 0, stream>>>(y, gate, up, n);
  check_launch("swiglu");
}

template <class T>
void add(T* x, const T* y, int64_t n, cudaStream_t stream) {
  if (n == 0) return;
  add_kernel<T><<<grid_for(n), kThreads, 0, stream>>>(x, y, n);
  check_launch("add");
}

template void swiglu<float>(float*, const float*, const float*, int64_t, cudaStream_t);
template void swiglu<double>(double*, const double*, const double*, int64_t, cudaStream_t);
template void add<float>(float*, const float*, int64_t, cudaStream_t);
template void add<double>(double*, const double*, int64_t, cudaStream_t);

}  // namespace logitgate::cuda
