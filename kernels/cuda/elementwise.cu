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

// y[i] = f(a[i], b[i]); VECTOR: 16 bytes at a time, for aligned operands and n a multiple.
template <class T, bool VECTOR, class F>
__global__ void __launch_bounds__(kThreads) pairwise_kernel(T* y, const T* a, const T* b, int64_t n, F f) {
  constexpr int kVector = VECTOR ? 16 / static_cast<int>(sizeof(T)) : 1;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * kVector;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector; i < n;
       i += stride) {
    if constexpr (VECTOR) {
      alignas(16) T u[kVector];
      alignas(16) T v[kVector];
      *reinterpret_cast<uint4*>(u) = *reinterpret_cast<const uint4*>(a + i);
      *reinterpret_cast<uint4*>(v) = *reinterpret_cast<const uint4*>(b + i);
#pragma unroll
      for (int e = 0; e < kVector; e++) u[e] = f(u[e], v[e]);
      *reinterpret_cast<uint4*>(y + i) = *reinterpret_cast<const uint4*>(u);
    } else {
      y[i] = f(a[i], b[i]);
    }
  }
}

template <class T, class F>
void pairwise(T* y, const T* a, const T* b, int64_t n, F f, cudaStream_t stream) {
  constexpr int64_t kVector = 16 / static_cast<int64_t>(sizeof(T));
  const uintptr_t bits =
      reinterpret_cast<uintptr_t>(y) | reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b);
  if (bits % 16 == 0 && n % kVector == 0) {
    pairwise_kernel<T, true><<<grid_for(n / kVector), kThreads, 0, stream>>>(y, a, b, n, f);
  } else {
    pairwise_kernel<T, false><<<grid_for(n), kThreads, 0, stream>>>(y, a, b, n, f);
  }
}

struct SwigluOf {
  template <class T>
  __device__ T operator()(T gate, T up) const {
    return swiglu_of(gate, up);
  }
};
struct SumOf {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return add_rn(a, b);
  }
};

}  // namespace

template <class T>
void swiglu(T* y, const T* gate, const T* up, int64_t n, cudaStream_t stream) {
  if (n == 0) return;
  pairwise(y, gate, up, n, SwigluOf(), stream);
  check_launch("swiglu");
}

template <class T>
void add(T* x, const T* y, int64_t n, cudaStream_t stream) {
  if (n == 0) return;
  pairwise(x, static_cast<const T*>(x), y, n, SumOf(), stream);
  check_launch("add");
}

template void swiglu<float>(float*, const float*, const float*, int64_t, cudaStream_t);
template void swiglu<double>(double*, const double*, const double*, int64_t, cudaStream_t);
template void add<float>(float*, const float*, int64_t, cudaStream_t);
template void add<double>(double*, const double*, int64_t, cudaStream_t);

}  // namespace logitgate::cuda
