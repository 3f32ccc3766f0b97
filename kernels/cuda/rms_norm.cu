// RMSNorm over rows or heads, alone and fused with the residual add before it.
// Contract: kernels/cuda/ops.h. Groups of up to 256 elements take a warp each, longer ones a block of 256
// threads; the sum of squares has an order fixed by n. Reads x (and y) once from memory and writes the result
// once.
#include "kernels/cuda/check.h"
#include "kernels/cuda/rms_norm.cuh"

namespace logitgate::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    rms_norm_warp_kernel(T* y, const T* x, WeightView w, int64_t n_groups, int64_t n, T eps) {
  const int lane = threadIdx.x % 32;
  const int64_t group = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (group >= n_groups) return;
  T v[kWarpNormMax / 32];
#pragma unroll
  for (int j = 0; j < kWarpNormMax / 32; j++) {
    const int64_t i = lane + 32 * j;
    v[j] = i < n ? x[group * n + i] : T(0);
  }
  const T scale = warp_rms_scale(v, n, eps);
#pragma unroll
  for (int j = 0; j < kWarpNormMax / 32; j++) {
    const int64_t i = lane + 32 * j;
    if (i < n) y[group * n + i] = mul_rn(mul_rn(v[j], scale), static_cast<T>(read_weight(w, 0, i)));
  }
}

// The sum over a block of kBlock threads: a tree in each warp, then the warps' sums in order.
template <int kBlock, class T>
__device__ T block_sum(T v) {
  __shared__ T sums[kBlock / 32];
  v = group_sum<32>(v);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = v;
  __syncthreads();
  T total = T(0);
#pragma unroll
  for (int i = 0; i < kBlock / 32; i++) total = add_rn(total, sums[i]);
  return total;
}

// One block a row, any n. ADD: x += y first, and the row written back; h may be x only where !ADD.
template <class T, bool ADD>
__global__ void __launch_bounds__(kThreads)
    rms_norm_block_kernel(T* h, T* x, const T* y, WeightView w, int64_t n, T eps) {
  T* const row = x + blockIdx.x * n;
  T sum = T(0);
  for (int64_t i = threadIdx.x; i < n; i += kThreads) {
    T v = row[i];
    if constexpr (ADD) {
      v = add_rn(v, y[blockIdx.x * n + i]);
      row[i] = v;
    }
    sum = fma_rn(v, v, sum);
  }
  const T scale = rms_scale(block_sum<kThreads>(sum), n, eps);
  for (int64_t i = threadIdx.x; i < n; i += kThreads) {
    h[blockIdx.x * n + i] = mul_rn(mul_rn(row[i], scale), static_cast<T>(read_weight(w, 0, i)));
  }
}

// The same for rows whose elements fit the block's registers, 16 bytes at a time: every load is in flight at
// once.
constexpr int kWideThreads = 512;
template <class T>
struct WideRow {
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  static constexpr int kChunks = 4;  // of a thread
  static constexpr int64_t kMost = int64_t{kWideThreads} * kVector * kChunks;
};
template <class T, bool ADD>
__global__ void __launch_bounds__(kWideThreads)
    rms_norm_wide_kernel(T* h, T* x, const T* y, WeightView w, int64_t n, T eps) {
  using Wide = WideRow<T>;
  constexpr int kVector = Wide::kVector;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * n;
  alignas(16) T v[Wide::kChunks][kVector];
  alignas(16) T add[Wide::kChunks][kVector];
#pragma unroll
  for (int c = 0; c < Wide::kChunks; c++) {
    const int64_t i = static_cast<int64_t>(c * kWideThreads + threadIdx.x) * kVector;
    if (i >= n) continue;
    *reinterpret_cast<uint4*>(v[c]) = *reinterpret_cast<const uint4*>(x + row + i);
    if constexpr (ADD) *reinterpret_cast<uint4*>(add[c]) = *reinterpret_cast<const uint4*>(y + row + i);
  }
  T sum = T(0);
#pragma unroll
  for (int c = 0; c < Wide::kChunks; c++) {
    const int64_t i = static_cast<int64_t>(c * kWideThreads + threadIdx.x) * kVector;
    if (i >= n) continue;
#pragma unroll
    for (int e = 0; e < kVector; e++) {
      if constexpr (ADD) v[c][e] = add_rn(v[c][e], add[c][e]);
      sum = fma_rn(v[c][e], v[c][e], sum);
    }
    if constexpr (ADD) *reinterpret_cast<uint4*>(x + row + i) = *reinterpret_cast<const uint4*>(v[c]);
  }
  const T scale = rms_scale(block_sum<kWideThreads>(sum), n, eps);
#pragma unroll
  for (int c = 0; c < Wide::kChunks; c++) {
    const int64_t i = static_cast<int64_t>(c * kWideThreads + threadIdx.x) * kVector;
    if (i >= n) continue;
#pragma unroll
    for (int e = 0; e < kVector; e++) {
      v[c][e] = mul_rn(mul_rn(v[c][e], scale), static_cast<T>(read_weight(w, 0, i + e)));
    }
    *reinterpret_cast<uint4*>(h + row + i) = *reinterpret_cast<const uint4*>(v[c]);
  }
}

// Which kernel serves rows of n is fixed by n alone, since their orders differ.
template <class T>
bool fits_wide(int64_t n) {
  return n % WideRow<T>::kVector == 0 && n <= WideRow<T>::kMost;
}

template <class T, bool ADD>
void launch_rows(T* h, T* x, const T* y, const WeightView& w, int64_t n_rows, int64_t n, T eps,
                 cudaStream_t stream) {
  const unsigned n_blocks = static_cast<unsigned>(n_rows);
  if (fits_wide<T>(n)) {
    rms_norm_wide_kernel<T, ADD><<<n_blocks, kWideThreads, 0, stream>>>(h, x, y, w, n, eps);
  } else {
    rms_norm_block_kernel<T, ADD><<<n_blocks, kThreads, 0, stream>>>(h, x, y, w, n, eps);
  }
}

}  // namespace

template <class T>
void rms_norm(T* y, const T* x, const WeightView& w, int64_t n_groups, int64_t n, T eps,
              cudaStream_t stream) {
  if (n_groups == 0) return;
  if (n <= kWarpNormMax) {
    const int64_t n_blocks = (n_groups + kThreads / 32 - 1) / (kThreads / 32);
    rms_norm_warp_kernel<T>
        <<<static_cast<unsigned>(n_blocks), kThreads, 0, stream>>>(y, x, w, n_groups, n, eps);
  } else {
    launch_rows<T, false>(y, const_cast<T*>(x), nullptr, w, n_groups, n, eps, stream);
  }
  check_launch("rms_norm");
}

template <class T>
void add_rms_norm(T* h, T* x, const T* y, const WeightView& w, int64_t n_rows, int64_t n, T eps,
                  cudaStream_t stream) {
  if (n_rows == 0) return;
  if (n <= kWarpNormMax) {  // the norm's order for short rows is the warp's
    add(x, y, n_rows * n, stream);
    rms_norm(h, static_cast<const T*>(x), w, n_rows, n, eps, stream);
    return;
  }
  launch_rows<T, true>(h, x, y, w, n_rows, n, eps, stream);
  check_launch("add_rms_norm");
}

template void rms_norm<float>(float*, const float*, const WeightView&, int64_t, int64_t, float, cudaStream_t);
template void rms_norm<double>(double*, const double*, const WeightView&, int64_t, int64_t, double,
                               cudaStream_t);
template void add_rms_norm<float>(float*, float*, const float*, const WeightView&, int64_t, int64_t, float,
                                  cudaStream_t);
template void add_rms_norm<double>(double*, double*, const double*, const WeightView&, int64_t, int64_t,
                                   double, cudaStream_t);

}  // namespace logitgate::cuda
