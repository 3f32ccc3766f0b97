// GEMV on the weights' own bytes for several rows of x ("lanes") at once: y[l, o] = Σ_i w[o, i] · x[l, i].
// Contract: the order of a sum is fixed by n_in and the weight type. A row of weights is shared by 1, 2, 4 or
// 8 warps. Of each segment of 4096 weights (with fewer than 8 warps there is one segment, the row) thread t
// of n takes the 16-byte chunks t, t + n, … in ascending order into one chain of fused multiply-adds; a tree
// over each warp; the segments' sums in order; then the warps' sums in order. So the bits of y[l, o] do not
// depend on how many lanes share the pass, nor on which of the two kernels below made them.
// Layout: x [n_lanes, n_in], y [n_lanes, n_out], w as WeightView says. Every weight is read once for up to
// eight lanes.
#pragma once

#include <algorithm>

#include "kernels/cuda/check.h"
#include "kernels/cuda/weight_reader.cuh"

namespace logitgate::cuda {

inline constexpr int kGemvThreads = 256;
inline constexpr int kGemvWarps = kGemvThreads / 32;
inline constexpr int kSegment = 4096;

// Warps that share a weight row: as many as have work, so that even one row keeps many loads in flight.
inline int gemv_split(int64_t n_in, int chunk) {
  const int64_t n_chunks = n_in / chunk;
  return n_chunks >= 256 ? 8 : n_chunks >= 128 ? 4 : n_chunks >= 64 ? 2 : 1;
}

struct GemvKernelArgs {
  WeightView w[3];
  void* y[3];
  const void* x;
  int n_lanes;
  int split;                // warps a weight row
  unsigned first_group[3];  // of each matrix, in groups of rows; matrices follow each other
  unsigned n_groups;
};

// A weight row: which matrix, which row of it.
struct GemvRow {
  int matrix;
  int64_t row;
};

// The rows of a group: kRows neighbours of one matrix, or with GATED kRows / 2 of both, taking turns. Past
// the last row: the last again.
template <int kRows, bool GATED>
__device__ __forceinline__ int rows_of_group(GemvRow (&rows)[kRows], int64_t& first,
                                             const GemvKernelArgs& args, unsigned group) {
  const int m = GATED ? 0 : group >= args.first_group[2] ? 2 : group >= args.first_group[1] ? 1 : 0;
  first = static_cast<int64_t>(group - args.first_group[m]) * (GATED ? kRows / 2 : kRows);
  const int64_t last = args.w[m].n_out - 1;
#pragma unroll
  for (int r = 0; r < kRows; r++)
    rows[r] = GATED ? GemvRow{r % 2, min(first + r / 2, last)} : GemvRow{m, min(first + r, last)};
  return m;
}

// One lane
// ----------------------------------------------------------------------------------------------------------

// kRows weight rows a group of warps makes at a time, kDepth chunks of each in flight.
template <int kChunk>
struct GemvShape {
  static constexpr int kRows = kChunk == 4 ? 2 : 4;
  static constexpr int kDepth = kChunk == 16 ? 1 : kChunk == 8 ? 2 : kChunk == 4 ? 4 : 1;
};

// acc[r] += Σ w[row r, i…] · x[i…] over one chunk of each row.
template <class T, class Reader, Rounding R, int kRows>
__device__ __forceinline__ void gemv_chunk(T (&acc)[kRows], const typename Reader::Raw (&raw)[kRows],
                                           const T* __restrict__ x) {
  constexpr int kChunk = Reader::kChunk;
  alignas(16) T v[kChunk];
  if constexpr (kChunk * sizeof(T) % 16 == 0) {
    load_vector(v, x);
  } else {
#pragma unroll
    for (int c = 0; c < kChunk; c++) v[c] = x[c];
  }
  if constexpr (R != Rounding::none) {
#pragma unroll
    for (int c = 0; c < kChunk; c++) v[c] = round_operand<R>(v[c]);
  }
#pragma unroll
  for (int r = 0; r < kRows; r++) {
    float w[kChunk];
    decode_chunk<Reader>(w, raw[r]);
#pragma unroll
    for (int c = 0; c < kChunk; c++) acc[r] = fma_rn(static_cast<T>(round_operand<R>(w[c])), v[c], acc[r]);
  }
}

template <class T, WeightType Q, bool SCALAR, Rounding R, bool GATED>
__global__ void __launch_bounds__(kGemvThreads, 2) gemv_kernel(const GemvKernelArgs args) {
  using Reader = WeightReader<Q, SCALAR>;
  constexpr int kRows = GemvShape<Reader::kChunk>::kRows;
  constexpr int kDepth = GemvShape<Reader::kChunk>::kDepth;
  __shared__ T partial[kGemvWarps][kRows];
  const int warp = threadIdx.x / 32;
  const int part = warp % args.split;
  const unsigned group = min(blockIdx.x * (kGemvWarps / args.split) + warp / args.split, args.n_groups - 1);
  GemvRow rows[kRows];
  int64_t first;
  const int m = rows_of_group<kRows, GATED>(rows, first, args, group);
  const int64_t n_in = args.w[0].n_in;
  const int64_t stride = static_cast<int64_t>(args.split) * 32 * Reader::kChunk;
  const int64_t segment = args.split == 8 && !SCALAR ? kSegment : n_in;
  const int64_t mine = static_cast<int64_t>(part * 32 + threadIdx.x % 32) * Reader::kChunk;
  const T* const x = static_cast<const T*>(args.x);
  T total[kRows] = {};
  for (int64_t start = 0; start < n_in; start += segment) {
    const int64_t end = min(start + segment, n_in);
    T acc[kRows] = {};
    for (int64_t i = start + mine; i < end; i += kDepth * stride) {
      typename Reader::Raw raw[kDepth][kRows];
#pragma unroll
      for (int d = 0; d < kDepth; d++) {
        if (i + d * stride >= end) continue;
#pragma unroll
        for (int r = 0; r < kRows; r++)
          raw[d][r] = Reader::load(args.w[rows[r].matrix], rows[r].row, i + d * stride);
      }
#pragma unroll
      for (int d = 0; d < kDepth; d++) {
        if (i + d * stride < end) gemv_chunk<T, Reader, R, kRows>(acc, raw[d], x + i + d * stride);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; r++) total[r] = add_rn(total[r], group_sum<32>(acc[r]));
  }
  if (threadIdx.x % 32 == 0) {
#pragma unroll
    for (int r = 0; r < kRows; r++) partial[warp][r] = total[r];
  }
  __syncthreads();
  if (part != 0 || threadIdx.x % 32 != 0) return;
  for (int p = 1; p < args.split; p++) {
#pragma unroll
    for (int r = 0; r < kRows; r++) total[r] = add_rn(total[r], partial[warp + p][r]);
  }
  T* const y = static_cast<T*>(args.y[m]) + first;
#pragma unroll
  for (int r = 0; r < kRows / (GATED ? 2 : 1); r++) {
    if (first + r >= args.w[m].n_out) continue;
    if constexpr (GATED) {
      y[r] = swiglu_of(total[2 * r], total[2 * r + 1]);
    } else {
      y[r] = total[r];
    }
  }
}

// Several lanes
// -----------------------------------------------------------------------------------------------------

// A block keeps one segment of x for all lanes in shared memory and walks groups of rows, kBatch at a time;
// each of its threads holds one sum a (row, lane) of the group at hand. After a warp's tree, whose exchange
// halves the sums at every step, thread t holds those of results t·kResults….
template <int kLanes>
struct LanesShape {
  static constexpr int kRows = 8;
  static constexpr int kBatch = 8;  // groups of rows between two meetings of the block
  static constexpr int kSums = kRows * kLanes;
  static constexpr int kResults = kSums / 32;
  static constexpr size_t kSharedBytes =
      sizeof(float) * (static_cast<size_t>(kLanes) * kSegment + size_t{kBatch} * kGemvWarps * kSums);
};

// The tree of group_sum<32> over N sums at once: the same pairs are added in the same order.
template <int N>
__device__ __forceinline__ void tree(float (&v)[N], int lane) {
  int half = N / 2;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2, half /= 2) {
    const bool upper = (lane & offset) != 0;
#pragma unroll
    for (int j = 0; j < N / 2; j++) {
      if (j >= half) continue;
      const float sent = upper ? v[j] : v[j + half];
      const float kept = upper ? v[j + half] : v[j];
      v[j] = add_rn(kept, __shfl_xor_sync(0xffffffffu, sent, offset));
    }
  }
}

// Copies x [n_lanes, start … end) to shared memory, so that each thread's chunk lies in 16-byte words that
// neighbours' words follow.
template <Rounding R, int kLanes, int kChunk>
__device__ __forceinline__ void stage_x(float* xs, const GemvKernelArgs& args, int64_t start, int64_t end) {
  const int n_four = static_cast<int>(end - start) / 4;
  const int threads = args.split * 32;
  for (int e = threadIdx.x; e < kLanes * n_four; e += kGemvThreads) {
    const int l = e / n_four;
    const int four = e % n_four;
    const int chunk = four / (kChunk / 4);
    float4 v = {0, 0, 0, 0};
    if (l < args.n_lanes)
      v = *reinterpret_cast<const float4*>(static_cast<const float*>(args.x) + l * args.w[0].n_in + start +
                                           4 * four);
    v = {round_operand<R>(v.x), round_operand<R>(v.y), round_operand<R>(v.z), round_operand<R>(v.w)};
    const int at = (chunk / threads * (kChunk / 4) + four % (kChunk / 4)) * threads + chunk % threads;
    reinterpret_cast<float4*>(xs)[l * (kSegment / 4) + at] = v;
  }
}

template <class Reader, int kRows, bool GATED>
__device__ __forceinline__ void load_group(typename Reader::Raw (&raw)[kRows], const GemvKernelArgs& args,
                                           unsigned group, int64_t i) {
  GemvRow rows[kRows];
  int64_t first;
  rows_of_group<kRows, GATED>(rows, first, args, group);
#pragma unroll
  for (int r = 0; r < kRows; r++) raw[r] = Reader::load(args.w[rows[r].matrix], rows[r].row, i);
}

template <WeightType Q, Rounding R, int kLanes, bool GATED>
__global__ void __launch_bounds__(kGemvThreads, 1) gemv_lanes_kernel(const GemvKernelArgs args) {
  using Reader = WeightReader<Q, false>;
  using S = LanesShape<kLanes>;
  constexpr int kChunk = Reader::kChunk;
  constexpr int kRows = S::kRows;
  extern __shared__ float4 shared[];
  float* const xs = reinterpret_cast<float*>(shared);
  float* const sums = xs + kLanes * kSegment;  // [kBatch, kGemvWarps, kSums]
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int split = args.split;
  const int threads = split * 32;
  const int in_group = static_cast<int>(threadIdx.x) % threads;
  const int groups = kGemvWarps / split;
  const int64_t n_in = args.w[0].n_in;
  const int64_t segment = split == 8 ? kSegment : n_in;
  const unsigned step = gridDim.x * groups;
  const unsigned mine = blockIdx.x * groups + warp / split;
  const auto group_at = [&](unsigned k) { return min(mine + k * step, args.n_groups - 1); };
  const unsigned n_rounds = (args.n_groups + step - 1) / step;
  for (unsigned k0 = 0; k0 < n_rounds; k0 += S::kBatch) {
    const unsigned n_batch = min(static_cast<unsigned>(S::kBatch), n_rounds - k0);
    for (int64_t start = 0; start < n_in; start += segment) {
      const int64_t end = min(start + segment, n_in);
      if (k0 == 0 || segment < n_in) {
        __syncthreads();
        stage_x<R, kLanes, kChunk>(xs, args, start, end);
        __syncthreads();
      }
      const int64_t i0 = start + static_cast<int64_t>(in_group) * kChunk;
      const int64_t stride = static_cast<int64_t>(threads) * kChunk;
      typename Reader::Raw next[kRows];
      if (i0 < end) load_group<Reader, kRows, GATED>(next, args, group_at(k0), i0);
      for (unsigned k = 0; k < n_batch; k++) {
        float acc[S::kSums];
#pragma unroll
        for (int s = 0; s < S::kSums; s++) acc[s] = 0.0f;
        int round = 0;
        for (int64_t i = i0; i < end; i += stride, round++) {
          typename Reader::Raw raw[kRows];
#pragma unroll
          for (int r = 0; r < kRows; r++) raw[r] = next[r];
          const bool same = i + stride < end;
          if (same || k + 1 < n_batch)
            load_group<Reader, kRows, GATED>(next, args, group_at(k0 + k + (same ? 0 : 1)),
                                             same ? i + stride : i0);
#pragma unroll
          for (int four = 0; four < kChunk / 4; four++) {
            float w[kRows][4];
#pragma unroll
            for (int r = 0; r < kRows; r++) {
              Reader::decode_four(w[r], raw[r], four);
#pragma unroll
              for (int e = 0; e < 4; e++) w[r][e] = round_operand<R>(w[r][e]);
            }
            const float4* const x_at =
                reinterpret_cast<const float4*>(xs) + (round * (kChunk / 4) + four) * threads + in_group;
#pragma unroll
            for (int l = 0; l < kLanes; l++) {
              const float4 v = x_at[l * (kSegment / 4)];
#pragma unroll
              for (int r = 0; r < kRows; r++) {
                float& a = acc[r * kLanes + l];
                a = fma_rn(w[r][0], v.x, a);
                a = fma_rn(w[r][1], v.y, a);
                a = fma_rn(w[r][2], v.z, a);
                a = fma_rn(w[r][3], v.w, a);
              }
            }
          }
        }
        tree(acc, lane);
        float* const to = sums + (k * kGemvWarps + warp) * S::kSums + lane * S::kResults;
#pragma unroll
        for (int s = 0; s < S::kResults; s++)
          to[s] = start == 0 ? add_rn(0.0f, acc[s]) : add_rn(to[s], acc[s]);
      }
    }
    __syncthreads();
    // The warps' sums in order; a result is one (row, lane), or with GATED a pair of rows.
    constexpr int kOutputs = GATED ? S::kSums / 2 : S::kSums;
    for (unsigned e = threadIdx.x; e < n_batch * static_cast<unsigned>(groups * kOutputs);
         e += kGemvThreads) {
      const unsigned k = e / static_cast<unsigned>(groups * kOutputs);
      const int in_block = static_cast<int>(e / kOutputs) % groups;
      const int r = static_cast<int>(e % kOutputs) / kLanes;
      const int l = static_cast<int>(e % kLanes);
      const unsigned group = blockIdx.x * groups + in_block + (k0 + k) * step;
      if (group >= args.n_groups || l >= args.n_lanes) continue;
      const auto total = [&](int row) {
        const float* const from = sums + (k * kGemvWarps + in_block * split) * S::kSums + row * kLanes + l;
        float t = from[0];
        for (int p = 1; p < split; p++) t = add_rn(t, from[p * S::kSums]);
        return t;
      };
      GemvRow rows[kRows];
      int64_t first;
      const int m = rows_of_group<kRows, GATED>(rows, first, args, group);
      if (first + r >= args.w[m].n_out) continue;
      float* const to = static_cast<float*>(args.y[m]) + l * args.w[m].n_out + first + r;
      if constexpr (GATED) {
        *to = swiglu_of(total(2 * r), total(2 * r + 1));
      } else {
        *to = total(r);
      }
    }
    __syncthreads();  // before the next batch's sums
  }
}

// Launchers
// ---------------------------------------------------------------------------------------------------------

// Fills in how rows make groups.
inline void count_groups(GemvKernelArgs& args, int n_matrices, int group_rows) {
  args.n_groups = 0;
  for (int m = 0; m < 3; m++) {
    args.first_group[m] = m < n_matrices ? args.n_groups : 0xffffffffu;
    if (m < n_matrices)
      args.n_groups += static_cast<unsigned>((args.w[m].n_out + group_rows - 1) / group_rows);
  }
}

template <class T, WeightType Q, bool SCALAR, Rounding R, bool GATED>
void launch_one(GemvKernelArgs args, int n_matrices, cudaStream_t stream) {
  constexpr int kChunk = WeightReader<Q, SCALAR>::kChunk;
  args.split = gemv_split(args.w[0].n_in, kChunk);
  count_groups(args, GATED ? 1 : n_matrices, GemvShape<kChunk>::kRows / (GATED ? 2 : 1));
  const unsigned groups = static_cast<unsigned>(kGemvWarps / args.split);
  gemv_kernel<T, Q, SCALAR, R, GATED>
      <<<(args.n_groups + groups - 1) / groups, kGemvThreads, 0, stream>>>(args);
  check_launch("gemv");
}

struct DeviceLimits {
  int n_multiprocessors = 0;
  int shared_bytes = 0;
};
inline DeviceLimits device_limits() {
  DeviceLimits limits;
  int device = 0;
  LOGITGATE_CUDA(cudaGetDevice(&device));
  LOGITGATE_CUDA(cudaDeviceGetAttribute(&limits.n_multiprocessors, cudaDevAttrMultiProcessorCount, device));
  LOGITGATE_CUDA(
      cudaDeviceGetAttribute(&limits.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return limits;
}

template <WeightType Q, Rounding R, int kLanes, bool GATED>
void launch_lanes(GemvKernelArgs args, int n_matrices, const DeviceLimits& limits, cudaStream_t stream) {
  using S = LanesShape<kLanes>;
  args.split = gemv_split(args.w[0].n_in, WeightReader<Q, false>::kChunk);
  count_groups(args, GATED ? 1 : n_matrices, S::kRows / (GATED ? 2 : 1));
  LOGITGATE_CUDA(cudaFuncSetAttribute(gemv_lanes_kernel<Q, R, kLanes, GATED>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(S::kSharedBytes)));
  const unsigned groups = static_cast<unsigned>(kGemvWarps / args.split);
  const unsigned n_blocks =
      std::min((args.n_groups + groups - 1) / groups, static_cast<unsigned>(limits.n_multiprocessors));
  gemv_lanes_kernel<Q, R, kLanes, GATED><<<n_blocks, kGemvThreads, S::kSharedBytes, stream>>>(args);
  check_launch("gemv_lanes");
}

// All lanes: one alone, or up to eight a launch (four where shared memory is short).
template <class T, WeightType Q, Rounding R>
void gemv_of_type(const GemvArgs& args, cudaStream_t stream) {
  bool aligned = reinterpret_cast<uintptr_t>(args.x) % 16 == 0;
  for (int m = 0; m < args.n_matrices; m++) aligned = aligned && rows_are_aligned(args.w[m]);
  const DeviceLimits limits = device_limits();
  const bool eight = static_cast<size_t>(limits.shared_bytes) >= LanesShape<8>::kSharedBytes;
  for (int64_t lane = 0; lane < args.n_lanes;) {
    const int64_t left = args.n_lanes - lane;
    const int64_t step = !aligned || sizeof(T) == 8 ? 1 : std::min<int64_t>(left, eight ? 8 : 4);
    GemvKernelArgs kernel{};
    for (int m = 0; m < args.n_matrices; m++) {
      kernel.w[m] = args.w[m];
      if (args.y[m] != nullptr) kernel.y[m] = static_cast<T*>(args.y[m]) + lane * args.w[m].n_out;
    }
    kernel.x = static_cast<const T*>(args.x) + lane * args.w[0].n_in;
    kernel.n_lanes = static_cast<int>(step);
    if (!aligned) {
      launch_one<T, Q, true, R, false>(kernel, args.n_matrices, stream);
    } else if (step == 1) {
      args.gated ? launch_one<T, Q, false, R, true>(kernel, args.n_matrices, stream)
                 : launch_one<T, Q, false, R, false>(kernel, args.n_matrices, stream);
    } else if constexpr (sizeof(T) == 4) {
      if (step <= 4) {
        args.gated ? launch_lanes<Q, R, 4, true>(kernel, args.n_matrices, limits, stream)
                   : launch_lanes<Q, R, 4, false>(kernel, args.n_matrices, limits, stream);
      } else {
        args.gated ? launch_lanes<Q, R, 8, true>(kernel, args.n_matrices, limits, stream)
                   : launch_lanes<Q, R, 8, false>(kernel, args.n_matrices, limits, stream);
      }
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
