// Attention of one query a token over the cache: the keys are split into pieces that are worked in parallel
// and combined in order.
// Contract: out[t] = softmax(scale · q[t] Kᵀ) V per head over keys 0…position(t). Piece s of a token covers
// keys [s·kPiece, (s+1)·kPiece); a piece gives its maximum, sum and unnormalised output, and the last block
// of a (token, key/value head) to finish combines the pieces in ascending order. Within a piece eight lanes
// share a key's score, a fixed part of the head each, and a warp takes eight keys' values in order, the warps
// following each other. So the bits depend on the position and the record's data alone.
// Layout: q, out [n_tokens, n_head, head_dim]; partial: [n_tokens, n_head, n_pieces, head_dim + 2] of T;
// counters [n_tokens, n_head_kv], zero between launches.
// Launch: grid (pieces, n_head_kv, tokens), 256 threads; pieces past a token's position leave at once, so the
// grid may be wider than needed.
// Reads the keys and values of a token once for each kGroup heads of a group.
#include "kernels/cuda/check.h"
#include "kernels/cuda/kv_address.cuh"
#include "kernels/cuda/math.cuh"

namespace logitgate::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kPiece = 64;  // keys a piece
constexpr int kWarpKeys = kPiece / kWarps;
constexpr int kKeyLanes = 8;  // lanes that share a key's score

int32_t pieces_for(int32_t max_positions) { return (max_positions + kPiece - 1) / kPiece; }

template <class T, int D>
struct DecodeShape {
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  static constexpr int kGroup = sizeof(T) == 4 ? 4 : 2;                         // heads of a group at once
  static constexpr int kKeyChunks = D / (kKeyLanes * kVector);                  // of a key, a lane
  static constexpr int kValueChunks = (D + 32 * kVector - 1) / (32 * kVector);  // of a value, a lane
};

// Elements [d, d + 16 bytes) of a row of head_dim; zeros past its end.
template <class T, int N>
__device__ __forceinline__ void read_chunk(T (&out)[N], const T* __restrict__ row, int d, int head_dim) {
  if (head_dim % N == 0) {
    const uint4 zero = {0, 0, 0, 0};
    *reinterpret_cast<uint4*>(out) = d < head_dim ? __ldg(reinterpret_cast<const uint4*>(row + d)) : zero;
  } else {
#pragma unroll
    for (int c = 0; c < N; c++) out[c] = d + c < head_dim ? row[d + c] : T(0);
  }
}

// p[g·kPiece + j] = scale · q[g] · key j
template <class T, int D>
__device__ __forceinline__ void piece_scores(T* p, const T* qs, const T* __restrict__ keys, int n_keys,
                                             int head_dim, T scale, int warp, int lane) {
  using S = DecodeShape<T, D>;
  constexpr int kRounds = kWarpKeys / (32 / kKeyLanes);
  alignas(16) T k[kRounds][S::kKeyChunks][S::kVector];
#pragma unroll
  for (int r = 0; r < kRounds; r++) {
    const int j = warp * kWarpKeys + r * (32 / kKeyLanes) + lane / kKeyLanes;
#pragma unroll
    for (int c = 0; c < S::kKeyChunks; c++) {
      const int d = (lane % kKeyLanes + c * kKeyLanes) * S::kVector;
      if (j < n_keys) {
        read_chunk(k[r][c], keys + static_cast<int64_t>(j) * head_dim, d, head_dim);
      } else {
#pragma unroll
        for (int e = 0; e < S::kVector; e++) k[r][c][e] = T(0);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRounds; r++) {
    const int j = warp * kWarpKeys + r * (32 / kKeyLanes) + lane / kKeyLanes;
#pragma unroll
    for (int g = 0; g < S::kGroup; g++) {
      T dot = T(0);
#pragma unroll
      for (int c = 0; c < S::kKeyChunks; c++) {
        const int d = (lane % kKeyLanes + c * kKeyLanes) * S::kVector;
#pragma unroll
        for (int e = 0; e < S::kVector; e++) dot = fma_rn(qs[g * D + d + e], k[r][c][e], dot);
      }
      dot = group_sum<kKeyLanes>(dot);
      if (lane % kKeyLanes == 0) p[g * kPiece + j] = mul_rn(dot, scale);
    }
  }
}

// A warp turns one head's scores into weights; every lane gets the maximum and the sum.
template <class T>
__device__ __forceinline__ void piece_softmax(T* p, int n_keys, T& maximum, T& sum, int lane) {
  T s[kPiece / 32];
  maximum = -infinity<T>();
#pragma unroll
  for (int r = 0; r < kPiece / 32; r++) {
    s[r] = lane + 32 * r < n_keys ? p[lane + 32 * r] : -infinity<T>();
    maximum = max_of(maximum, s[r]);
  }
  maximum = group_max<32>(maximum);
  sum = T(0);
#pragma unroll
  for (int r = 0; r < kPiece / 32; r++) {
    const T weight = lane + 32 * r < n_keys ? exp_rn(s[r] - maximum) : T(0);
    p[lane + 32 * r] = weight;
    sum = add_rn(sum, weight);
  }
  sum = group_sum<32>(sum);
}

// Combines the pieces of one head in ascending order: thread d makes output element d.
template <class T>
__device__ void combine(T* out, const T* partial, int n_pieces, int head_dim) {
  const int stride = head_dim + 2;
  T maximum = -infinity<T>();
  for (int s = 0; s < n_pieces; s++) maximum = max_of(maximum, __ldcg(partial + s * stride + head_dim));
  for (int d = threadIdx.x; d < head_dim; d += kThreads) {
    T o = T(0);
    T sum = T(0);
#pragma unroll 4
    for (int s = 0; s < n_pieces; s++) {
      const T weight = exp_rn(__ldcg(partial + s * stride + head_dim) - maximum);
      o = fma_rn(weight, __ldcg(partial + s * stride + d), o);
      sum = fma_rn(weight, __ldcg(partial + s * stride + head_dim + 1), sum);
    }
    out[d] = div_rn(o, sum);
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kThreads)
    attention_decode_kernel(T* __restrict__ out, const T* __restrict__ q, const KvView kv,
                            const AttentionArgs args, const BatchView batch, T* partial, unsigned* counters,
                            int max_pieces) {
  using S = DecodeShape<T, D>;
  __shared__ T qs[S::kGroup * D];
  __shared__ T p[S::kGroup * kPiece];
  __shared__ T sums[kWarps * S::kGroup * D];
  __shared__ bool last;
  const int piece = blockIdx.x;
  const int head_kv = blockIdx.y;
  const int token = blockIdx.z;
  const int n_keys_total = batch.position[token] + 1;
  const int n_pieces = (n_keys_total + kPiece - 1) / kPiece;
  if (piece >= n_pieces) return;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int head_dim = args.head_dim;
  const int group = args.n_head / args.n_head_kv;
  const int n_keys = min(kPiece, n_keys_total - piece * kPiece);
  const int64_t first_key = static_cast<int64_t>(piece) * kPiece * head_dim;
  const T* const keys = kv_head<T>(kv, batch.slot[token], args.layer, 0, head_kv) + first_key;
  const T* const values = kv_head<T>(kv, batch.slot[token], args.layer, 1, head_kv) + first_key;
  const int64_t first_head = static_cast<int64_t>(token) * args.n_head + head_kv * group;
  const int64_t head_stride = static_cast<int64_t>(max_pieces) * (head_dim + 2);
  const auto piece_of = [&](int head) {
    return partial + (first_head + head) * head_stride + static_cast<int64_t>(piece) * (head_dim + 2);
  };
  alignas(16) T v[kWarpKeys][S::kValueChunks][S::kVector];  // on their way while scores are made
#pragma unroll
  for (int j = 0; j < kWarpKeys; j++) {
#pragma unroll
    for (int c = 0; c < S::kValueChunks; c++) {
      if (warp * kWarpKeys + j < n_keys) {
        read_chunk(v[j][c], values + static_cast<int64_t>(warp * kWarpKeys + j) * head_dim,
                   (lane + 32 * c) * S::kVector, head_dim);
      }
    }
  }
  for (int g0 = 0; g0 < group; g0 += S::kGroup) {
    const int n_group = min(S::kGroup, group - g0);
    __syncthreads();
    for (int i = threadIdx.x; i < S::kGroup * D; i += kThreads) {
      qs[i] = i / D < n_group && i % D < head_dim ? q[(first_head + g0 + i / D) * head_dim + i % D] : T(0);
    }
    __syncthreads();
    piece_scores<T, D>(p, qs, keys, n_keys, head_dim, static_cast<T>(args.scale), warp, lane);
    __syncthreads();
    if (warp < n_group) {
      T maximum;
      T sum;
      piece_softmax(p + warp * kPiece, n_keys, maximum, sum, lane);
      if (lane == 0) {
        piece_of(g0 + warp)[head_dim] = maximum;
        piece_of(g0 + warp)[head_dim + 1] = sum;
      }
    }
    __syncthreads();
#pragma unroll
    for (int g = 0; g < S::kGroup; g++) {
      T o[S::kValueChunks][S::kVector] = {};
#pragma unroll
      for (int j = 0; j < kWarpKeys; j++) {
        if (warp * kWarpKeys + j >= n_keys || g >= n_group) break;
        const T weight = p[g * kPiece + warp * kWarpKeys + j];
#pragma unroll
        for (int c = 0; c < S::kValueChunks; c++) {
#pragma unroll
          for (int e = 0; e < S::kVector; e++) o[c][e] = fma_rn(weight, v[j][c][e], o[c][e]);
        }
      }
#pragma unroll
      for (int c = 0; c < S::kValueChunks; c++) {
#pragma unroll
        for (int e = 0; e < S::kVector; e++) {
          const int d = (lane + 32 * c) * S::kVector + e;
          if (d < D) sums[(warp * S::kGroup + g) * D + d] = o[c][e];
        }
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n_group * D; i += kThreads) {
      if (i % D >= head_dim) continue;
      T o = sums[i];
#pragma unroll
      for (int w = 1; w < kWarps; w++) o = add_rn(o, sums[w * S::kGroup * D + i]);
      piece_of(g0 + i / D)[i % D] = o;
    }
  }
  __threadfence();
  __syncthreads();
  unsigned* const counter = counters + static_cast<int64_t>(token) * args.n_head_kv + head_kv;
  if (threadIdx.x == 0) last = atomicAdd(counter, 1u) == static_cast<unsigned>(n_pieces) - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  if (threadIdx.x == 0) *counter = 0;
  for (int g = 0; g < group; g++)
    combine(out + (first_head + g) * head_dim, partial + (first_head + g) * head_stride, n_pieces, head_dim);
}

}  // namespace

template <class T>
size_t attention_decode_scratch(int32_t n_tokens, const AttentionArgs& args, int32_t max_positions) {
  return sizeof(T) * static_cast<size_t>(n_tokens) * static_cast<size_t>(args.n_head) *
         static_cast<size_t>(pieces_for(max_positions)) * static_cast<size_t>(args.head_dim + 2);
}

template <class T>
void attention_decode(T* out, const T* q, const KvView& kv, const AttentionArgs& args, const BatchView& batch,
                      int32_t max_positions, void* partial, unsigned* counters, cudaStream_t stream) {
  if (batch.n_tokens == 0) return;
  const int32_t max_pieces = pieces_for(max_positions);
  const dim3 grid(static_cast<unsigned>(max_pieces), static_cast<unsigned>(args.n_head_kv),
                  static_cast<unsigned>(batch.n_tokens));
  T* const scratch = static_cast<T*>(partial);
  if (args.head_dim <= 64) {
    attention_decode_kernel<T, 64>
        <<<grid, kThreads, 0, stream>>>(out, q, kv, args, batch, scratch, counters, max_pieces);
  } else if (args.head_dim <= 128) {
    attention_decode_kernel<T, 128>
        <<<grid, kThreads, 0, stream>>>(out, q, kv, args, batch, scratch, counters, max_pieces);
  } else {
    attention_decode_kernel<T, 256>
        <<<grid, kThreads, 0, stream>>>(out, q, kv, args, batch, scratch, counters, max_pieces);
  }
  check_launch("attention_decode");
}

template size_t attention_decode_scratch<float>(int32_t, const AttentionArgs&, int32_t);
template size_t attention_decode_scratch<double>(int32_t, const AttentionArgs&, int32_t);
template void attention_decode<float>(float*, const float*, const KvView&, const AttentionArgs&,
                                      const BatchView&, int32_t, void*, unsigned*, cudaStream_t);
template void attention_decode<double>(double*, const double*, const KvView&, const AttentionArgs&,
                                       const BatchView&, int32_t, void*, unsigned*, cudaStream_t);

}  // namespace logitgate::cuda
