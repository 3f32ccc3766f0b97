// GEMV on the weights' own bytes for up to eight rows of x at once: y[l, o] = Σ_i w[o, i] · x[l, i].
// Contract: a weight row is shared by 1, 2, 4 or 8 warps (by n_in and the type alone). Thread t of them takes
// chunks t, t + n, … of 16 bytes in ascending order into one accumulator per (weight row, row of x), one
// fused multiply-add a weight; then a fixed tree over each warp and the warps in order. So the bits of y[l,
// o] depend on n_in, the type and the data alone: not on how many rows of x share the pass, on the launch, or
// on what else is in it.
// Layout: x [n_lanes, n_in], y [n_lanes, n_out], w as WeightView says. A group of warps makes kRows weight
// rows, which are read once, and reads x, which stays in the caches, once for them.
#pragma once

#include "kernels/cuda/check.h"
#include "kernels/cuda/weight_reader.cuh"

namespace logitgate::cuda {

inline constexpr int kGemvThreads = 256;
inline constexpr int kGemvWarps = kGemvThreads / 32;

// kRows weight rows a group of warps makes at a time, kDepth chunks of each in flight, kBlocks a
// multiprocessor.
template <int kLanes, int kChunk>
struct GemvShape {
  static constexpr int kRows = kChunk == 4 && kLanes == 1 ? 2 : 4;
  static constexpr int kDepth = kLanes > 1 ? 1 : kChunk == 16 ? 1 : kChunk == 8 ? 2 : kChunk == 4 ? 4 : 1;
  static constexpr int kBlocks = kLanes == 8 ? 1 : kLanes == 4 ? 2 : 3;
};

// Warps that share a weight row: as many as have work, so that even one row keeps many loads in flight.
inline int gemv_split(int64_t n_in, int chunk) {
  const int64_t n_chunks = n_in / chunk;
  return n_chunks >= 256 ? 8 : n_chunks >= 128 ? 4 : n_chunks >= 64 ? 2 : 1;
}

// acc[r][l] += Σ w[row r, i…] · x[l, i…] over one chunk of each row.
template <class T, class Reader, Rounding R, int kRows, int kLanes>
__device__ __forceinline__ void gemv_chunk(T (&acc)[kRows][kLanes], const typename Reader::Raw (&raw)[kRows],
                                           const T* __restrict__ x, const int64_t n_in, const int n_lanes,
                                           const int64_t i) {
  constexpr int kChunk = Reader::kChunk;
  float w[kRows][kChunk];
#pragma unroll
  for (int r = 0; r < kRows; r++) {
    Reader::decode(w[r], raw[r]);
#pragma unroll
    for (int c = 0; c < kChunk; c++) w[r][c] = round_operand<R>(w[r][c]);
  }
#pragma unroll
  for (int l = 0; l < kLanes; l++) {
    const T* const from = x + (l < n_lanes ? l : 0) * n_in + i;
    alignas(16) T v[kChunk];
    if constexpr (kChunk * sizeof(T) % 16 == 0) {
      load_vector(v, from);
    } else {
#pragma unroll
      for (int c = 0; c < kChunk; c++) v[c] = from[c];
    }
#pragma unroll
    for (int c = 0; c < kChunk; c++) {
      if constexpr (R != Rounding::none) v[c] = round_operand<R>(v[c]);
#pragma unroll
      for (int r = 0; r < kRows; r++) acc[r][l] = fma_rn(static_cast<T>(w[r][c]), v[c], acc[r][l]);
    }
  }
}

// A weight row: which matrix, which row of it.
struct GemvRow {
  int matrix;
  int64_t row;
};

struct GemvKernelArgs {
  WeightView w[3];
  void* y[3];
  const void* x;
  int n_lanes;
  int split;                // warps a weight row
  unsigned first_block[3];  // of each matrix; matrices follow each other
};

// The dot products of kRows weight rows with kLanes rows of x, whole in every lane of the group's first warp.
template <class T, class Reader, Rounding R, int kRows, int kLanes>
__device__ __forceinline__ void gemv_rows(T (&acc)[kRows][kLanes], const GemvKernelArgs& args,
                                          const GemvRow (&rows)[kRows], T* partial) {
  constexpr int kDepth = GemvShape<kLanes, Reader::kChunk>::kDepth;
  const int warp = threadIdx.x / 32;
  const int part = warp % args.split;
  const int64_t n_in = args.w[0].n_in;
  const int64_t stride = static_cast<int64_t>(args.split) * 32 * Reader::kChunk;
  const T* const x = static_cast<const T*>(args.x);
#pragma unroll
  for (int r = 0; r < kRows; r++) {
#pragma unroll
    for (int l = 0; l < kLanes; l++) acc[r][l] = T(0);
  }
  int64_t i = static_cast<int64_t>(part * 32 + threadIdx.x % 32) * Reader::kChunk;
  for (; i + (kDepth - 1) * stride < n_in; i += kDepth * stride) {
    typename Reader::Raw raw[kDepth][kRows];
#pragma unroll
    for (int d = 0; d < kDepth; d++) {
#pragma unroll
      for (int r = 0; r < kRows; r++)
        raw[d][r] = Reader::load(args.w[rows[r].matrix], rows[r].row, i + d * stride);
    }
#pragma unroll
    for (int d = 0; d < kDepth; d++)
      gemv_chunk<T, Reader, R, kRows, kLanes>(acc, raw[d], x, n_in, args.n_lanes, i + d * stride);
  }
  if constexpr (kDepth > 1) {
    for (; i < n_in; i += stride) {
      typename Reader::Raw raw[kRows];
#pragma unroll
      for (int r = 0; r < kRows; r++) raw[r] = Reader::load(args.w[rows[r].matrix], rows[r].row, i);
      gemv_chunk<T, Reader, R, kRows, kLanes>(acc, raw, x, n_in, args.n_lanes, i);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; r++) {
#pragma unroll
    for (int l = 0; l < kLanes; l++) acc[r][l] = group_sum<32>(acc[r][l]);
  }
  if (args.split == 1) return;
  constexpr int kSums = kRows * kLanes;
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int r = 0; r < kRows; r++) {
#pragma unroll
      for (int l = 0; l < kLanes; l++) partial[warp * kSums + r * kLanes + l] = acc[r][l];
    }
  }
  __syncthreads();
  if (part != 0) return;
#pragma unroll
  for (int r = 0; r < kRows; r++) {
#pragma unroll
    for (int l = 0; l < kLanes; l++) {
      for (int p = 1; p < args.split; p++)
        acc[r][l] = add_rn(acc[r][l], partial[(warp + p) * kSums + r * kLanes + l]);
    }
  }
}

template <class T, WeightType Q, bool SCALAR, Rounding R, int kLanes, bool GATED>
__global__ void __launch_bounds__(kGemvThreads, (GemvShape<kLanes, WeightReader<Q, SCALAR>::kChunk>::kBlocks))
    gemv_kernel(const GemvKernelArgs args) {
  using Reader = WeightReader<Q, SCALAR>;
  constexpr int kRows = GemvShape<kLanes, Reader::kChunk>::kRows;
  constexpr int kResults =
      GATED ? kRows / 2 : kRows;  // outputs a group makes: a gated one takes a row of both matrices
  __shared__ T partial[kGemvWarps * kRows * kLanes];
  const int m = GATED ? 0 : blockIdx.x >= args.first_block[2] ? 2 : blockIdx.x >= args.first_block[1] ? 1 : 0;
  const int group = threadIdx.x / 32 / args.split;
  const int groups = kGemvWarps / args.split;
  const int64_t n_out = args.w[m].n_out;
  const int64_t first =
      (static_cast<int64_t>(blockIdx.x - (GATED ? 0 : args.first_block[m])) * groups + group) * kResults;
  GemvRow rows[kRows];  // past the last row, the last again
#pragma unroll
  for (int r = 0; r < kRows; r++) {
    rows[r] = GATED ? GemvRow{r % 2, min(first + r / 2, n_out - 1)} : GemvRow{m, min(first + r, n_out - 1)};
  }
  T acc[kRows][kLanes];
  gemv_rows<T, Reader, R>(acc, args, rows, partial);
  if (threadIdx.x / 32 % args.split != 0 || threadIdx.x % 32 != 0) return;
#pragma unroll
  for (int r = 0; r < kResults; r++) {
#pragma unroll
    for (int l = 0; l < kLanes; l++) {
      if (first + r >= n_out || l >= args.n_lanes) continue;
      T* const to = static_cast<T*>(args.y[m]) + l * n_out + first + r;
      if constexpr (GATED) {
        *to = swiglu_of(acc[2 * r][l], acc[2 * r + 1][l]);
      } else {
        *to = acc[r][l];
      }
    }
  }
}

template <class T, WeightType Q, bool SCALAR, Rounding R, int kLanes, bool GATED>
void launch_gemv(GemvKernelArgs args, int n_matrices, cudaStream_t stream) {
  constexpr int kChunk = WeightReader<Q, SCALAR>::kChunk;
  args.split = gemv_split(args.w[0].n_in, kChunk);
  const int64_t block_rows = GemvShape<kLanes, kChunk>::kRows / (GATED ? 2 : 1) * (kGemvWarps / args.split);
  unsigned n_blocks = 0;
  for (int m = 0; m < 3; m++) {
    const bool counts = m < (GATED ? 1 : n_matrices);
    args.first_block[m] = counts ? n_blocks : 0xffffffffu;
    if (counts) n_blocks += static_cast<unsigned>((args.w[m].n_out + block_rows - 1) / block_rows);
  }
  gemv_kernel<T, Q, SCALAR, R, kLanes, GATED><<<n_blocks, kGemvThreads, 0, stream>>>(args);
  check_launch("gemv");
}

// All lanes, up to eight a launch (one where rows are not aligned).
template <class T, WeightType Q, Rounding R>
void gemv_of_type(const GemvArgs& args, cudaStream_t stream) {
  bool aligned = reinterpret_cast<uintptr_t>(args.x) % 16 == 0;
  for (int m = 0; m < args.n_matrices; m++) aligned = aligned && rows_are_aligned(args.w[m]);
  for (int64_t lane = 0; lane < args.n_lanes;) {
    const int64_t left = args.n_lanes - lane;
    const int64_t step = !aligned ? 1 : left < 8 ? left : 8;
    GemvKernelArgs kernel{};
    for (int m = 0; m < args.n_matrices; m++) {
      kernel.w[m] = args.w[m];
      if (args.y[m] != nullptr) kernel.y[m] = static_cast<T*>(args.y[m]) + lane * args.w[m].n_out;
    }
    kernel.x = static_cast<const T*>(args.x) + lane * args.w[0].n_in;
    kernel.n_lanes = static_cast<int>(step);
    if (!aligned) {
      launch_gemv<T, Q, true, R, 1, false>(kernel, args.n_matrices, stream);
    } else if (step == 1) {
      args.gated ? launch_gemv<T, Q, false, R, 1, true>(kernel, args.n_matrices, stream)
                 : launch_gemv<T, Q, false, R, 1, false>(kernel, args.n_matrices, stream);
    } else if (step <= 4) {
      args.gated ? launch_gemv<T, Q, false, R, 4, true>(kernel, args.n_matrices, stream)
                 : launch_gemv<T, Q, false, R, 4, false>(kernel, args.n_matrices, stream);
    } else {
      args.gated ? launch_gemv<T, Q, false, R, 8, true>(kernel, args.n_matrices, stream)
                 : launch_gemv<T, Q, false, R, 8, false>(kernel, args.n_matrices, stream);
    }
    lane += step;
  }
}

template <class T, Rounding R>
void gemv(const GemvArgs& args, cudaStream_t stream) {
  switch (args.w[0].type) {
    case WeightType::F32:
      return gemv_of_type<T, WeightType::F32, R>(args, stream);
    case WeightType::F16:
      return gemv_of_type<T, WeightType::F16, R>(args, stream);
    case WeightType::BF16:
      return gemv_of_type<T, WeightType::BF16, R>(args, stream);
    default:
      return gemv_of_type<T, WeightType::Q8_0, R>(args, stream);
  }
}

}  // namespace logitgate::cuda
