// Dequantises weights to a GEMM's operand, rounds activations to bf16, and lays Q8_0 out for wide loads.
// Contract: kernels/cuda/ops.h. Each kernel is bound by memory: it reads the weights' bytes once and writes
// each operand once.
#include <algorithm>

#include "kernels/cuda/check.h"
#include "kernels/cuda/weight_reader.cuh"

namespace logitgate::cuda {
namespace {

constexpr int kThreads = 256;

int grid_for(int64_t n_items) {
  return static_cast<int>(std::min<int64_t>((n_items + kThreads - 1) / kThreads, int64_t{132} * 64));
}

__device__ __forceinline__ void store_operand(float* out, float v) { *out = v; }
__device__ __forceinline__ void store_operand(double* out, float v) { *out = static_cast<double>(v); }
__device__ __forceinline__ void store_operand(uint16_t* out, float v) {
  *out = __bfloat16_as_ushort(__float2bfloat16_rn(v));
}

// out [n_rows, n_in]; a thread takes chunk after chunk, grid-stride.
template <class T, WeightType Q, bool SCALAR>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(T* __restrict__ out, WeightView w, int64_t first_row, int64_t n_chunks) {
  using Reader = WeightReader<Q, SCALAR>;
  constexpr int kChunk = Reader::kChunk;
  const int64_t chunks_a_row = w.n_in / kChunk;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; c < n_chunks; c += stride) {
    const int64_t row = c / chunks_a_row;
    const int64_t i = (c - row * chunks_a_row) * kChunk;
    float v[kChunk];
    decode_chunk<Reader>(v, Reader::load(w, first_row + row, i));
    T* const to = out + row * w.n_in + i;
    if constexpr (kChunk * sizeof(T) % 16 == 0) {
      alignas(16) T packed[kChunk];
#pragma unroll
      for (int j = 0; j < kChunk; j++) store_operand(&packed[j], v[j]);
#pragma unroll
      for (int j = 0; j < static_cast<int>(kChunk * sizeof(T) / 16); j++) {
        reinterpret_cast<uint4*>(to)[j] = reinterpret_cast<const uint4*>(packed)[j];
      }
    } else {
#pragma unroll
      for (int j = 0; j < kChunk; j++) store_operand(to + j, v[j]);
    }
  }
}

template <class T, WeightType Q>
void launch(T* out, const WeightView& w, int64_t first_row, int64_t n_rows, cudaStream_t stream) {
  const int64_t n = n_rows * w.n_in;
  if (n == 0) return;
  if (rows_are_aligned(w)) {
    constexpr int kChunk = WeightReader<Q, false>::kChunk;
    dequantize_kernel<T, Q, false>
        <<<grid_for(n / kChunk), kThreads, 0, stream>>>(out, w, first_row, n / kChunk);
  } else {
    dequantize_kernel<T, Q, true><<<grid_for(n), kThreads, 0, stream>>>(out, w, first_row, n);
  }
  check_launch("dequantize");
}

template <class T>
void dequantize(T* out, const WeightView& w, int64_t first_row, int64_t n_rows, cudaStream_t stream) {
  switch (w.type) {
    case WeightType::F32:
      return launch<T, WeightType::F32>(out, w, first_row, n_rows, stream);
    case WeightType::F16:
      return launch<T, WeightType::F16>(out, w, first_row, n_rows, stream);
    case WeightType::BF16:
      return launch<T, WeightType::BF16>(out, w, first_row, n_rows, stream);
    default:
      return launch<T, WeightType::Q8_0>(out, w, first_row, n_rows, stream);
  }
}

// n floats to bf16; out is 16-byte aligned, x too where `aligned`; a thread takes four at a time.
__global__ void __launch_bounds__(kThreads)
    round_to_bf16_kernel(uint16_t* __restrict__ out, const float* __restrict__ x, int64_t n, bool aligned) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * 4;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 4; i < n; i += stride) {
    if (aligned && i + 4 <= n) {
      const float4 v = *reinterpret_cast<const float4*>(x + i);
      const ushort4 r = {
          __bfloat16_as_ushort(__float2bfloat16_rn(v.x)), __bfloat16_as_ushort(__float2bfloat16_rn(v.y)),
          __bfloat16_as_ushort(__float2bfloat16_rn(v.z)), __bfloat16_as_ushort(__float2bfloat16_rn(v.w))};
      *reinterpret_cast<ushort4*>(out + i) = r;
    } else {
      for (int64_t j = i; j < min(n, i + 4); j++) store_operand(out + j, x[j]);
    }
  }
}

// Block b of the file is an f16 scale and 32 signed bytes; a thread moves two bytes of quants, or a scale.
__global__ void __launch_bounds__(kThreads)
    split_q8_0_kernel(uint16_t* __restrict__ quants, uint16_t* __restrict__ scales,
                      const uint16_t* __restrict__ blocks, int64_t n_words) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n_words; i += stride) {
    const int64_t block = i / 17;
    const int64_t word = i - block * 17;
    if (word == 0) {
      scales[block] = blocks[i];
    } else {
      quants[block * 16 + word - 1] = blocks[i];
    }
  }
}

}  // namespace

void dequantize_f32(float* out, const WeightView& w, int64_t first_row, int64_t n_rows, cudaStream_t stream) {
  dequantize(out, w, first_row, n_rows, stream);
}
void dequantize_f64(double* out, const WeightView& w, int64_t first_row, int64_t n_rows,
                    cudaStream_t stream) {
  dequantize(out, w, first_row, n_rows, stream);
}
void dequantize_bf16(uint16_t* out, const WeightView& w, int64_t first_row, int64_t n_rows,
                     cudaStream_t stream) {
  dequantize(out, w, first_row, n_rows, stream);
}

void round_to_bf16(uint16_t* out, const float* x, int64_t n, cudaStream_t stream) {
  if (n == 0) return;
  round_to_bf16_kernel<<<grid_for((n + 3) / 4), kThreads, 0, stream>>>(
      out, x, n, reinterpret_cast<uintptr_t>(x) % 16 == 0);
  check_launch("round_to_bf16");
}

void split_q8_0(int8_t* quants, uint16_t* scales, const void* blocks, int64_t n_blocks, cudaStream_t stream) {
  if (n_blocks == 0) return;
  split_q8_0_kernel<<<grid_for(n_blocks * 17), kThreads, 0, stream>>>(
      reinterpret_cast<uint16_t*>(quants), scales, static_cast<const uint16_t*>(blocks), n_blocks * 17);
  check_launch("split_q8_0");
}

}  // namespace logitgate::cuda
