// RMSNorm's reduction over one warp, shared by the norm kernel and the fused end of the QKV projection.
// Contract: lane takes elements lane, lane + 32, … in order, then a fixed tree over the warp: bits depend on
// n alone.
#pragma once

#include "kernels/cuda/weight_reader.cuh"

namespace logitgate::cuda {

// Groups up to this size are normed by one warp, longer ones by a block.
inline constexpr int kWarpNormMax = 256;

// 1 / sqrt(sum / n + eps)
template <class T>
__device__ __forceinline__ T rms_scale(T sum, int64_t n, T eps) {
  return div_rn(T(1), sqrt_rn(add_rn(div_rn(sum, static_cast<T>(n)), eps)));
}

template <class T>
__device__ __forceinline__ T warp_rms_scale(const T (&v)[kWarpNormMax / 32], int64_t n, T eps) {
  T sum = T(0);
#pragma unroll
  for (int j = 0; j < kWarpNormMax / 32; j++) sum = fma_rn(v[j], v[j], sum);
  return rms_scale(group_sum<32>(sum), n, eps);
}

}  // namespace logitgate::cuda
