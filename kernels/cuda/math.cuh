// Arithmetic whose rounding is written out, so that every kernel that computes a formula gives the same bits.
// Contract: one IEEE operation each (the compiler may not contract them), exp within 2 ulp, in float and in
// double.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/ops.h"

namespace logitgate::cuda {

__device__ __forceinline__ float fma_rn(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double fma_rn(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ __forceinline__ float mul_rn(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double mul_rn(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float add_rn(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double add_rn(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float div_rn(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ double div_rn(double a, double b) { return __ddiv_rn(a, b); }
__device__ __forceinline__ float sqrt_rn(float a) { return __fsqrt_rn(a); }
__device__ __forceinline__ double sqrt_rn(double a) { return __dsqrt_rn(a); }
__device__ __forceinline__ float exp_rn(float a) { return expf(a); }
__device__ __forceinline__ double exp_rn(double a) { return exp(a); }
__device__ __forceinline__ float max_of(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double max_of(double a, double b) { return fmax(a, b); }

template <class T>
__device__ __forceinline__ T infinity();
template <>
__device__ __forceinline__ float infinity<float>() {
  return __int_as_float(0x7f800000);
}
template <>
__device__ __forceinline__ double infinity<double>() {
  return __longlong_as_double(0x7ff0000000000000LL);
}

// silu(g) · u
template <class T>
__device__ __forceinline__ T swiglu_of(T g, T u) {
  return mul_rn(div_rn(g, add_rn(T(1), exp_rn(-g))), u);
}

// The sum over a group of WIDTH neighbouring lanes, by a fixed tree; every lane gets it.
template <int WIDTH, class T>
__device__ __forceinline__ T group_sum(T v) {
#pragma unroll
  for (int offset = WIDTH / 2; offset > 0; offset /= 2)
    v = add_rn(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}
template <int WIDTH, class T>
__device__ __forceinline__ T group_max(T v) {
#pragma unroll
  for (int offset = WIDTH / 2; offset > 0; offset /= 2)
    v = max_of(v, __shfl_xor_sync(0xffffffffu, v, offset));
  return v;
}

template <Rounding R>
__device__ __forceinline__ float round_operand(float v) {
  if constexpr (R == Rounding::tf32) {
    unsigned out;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out) : "f"(v));
    return __uint_as_float(out & 0xffffe000u);
  } else if constexpr (R == Rounding::bf16) {
    return __bfloat162float(__float2bfloat16_rn(v));
  } else {
    return v;
  }
}

// N elements of T moved as 16-byte words; the pointer is 16-byte aligned.
template <int N, class T>
__device__ __forceinline__ void load_vector(T (&out)[N], const T* __restrict__ p) {
  static_assert(N * sizeof(T) % 16 == 0);
#pragma unroll
  for (int j = 0; j < static_cast<int>(N * sizeof(T) / 16); j++) {
    reinterpret_cast<uint4*>(out)[j] = __ldg(reinterpret_cast<const uint4*>(p) + j);
  }
}

}  // namespace logitgate::cuda
