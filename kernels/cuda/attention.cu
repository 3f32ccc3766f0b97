// Causal attention of many queries over the cache, by tiles with an online softmax; no T×T matrix exists.
// Contract: out[t] = softmax(scale · q[t] Kᵀ) V per head, keys 0…position(t) of the token's record. Query
// head h reads key/value head h / (n_head / n_head_kv). Layout: q, out [n_tokens, n_head, head_dim]; cache as
// kv_address.cuh says.
// Order: keys are walked in tiles of kKeys at multiples of kKeys from position 0; within a tile scores are
// chains of fused multiply-adds over head_dim, the sum of weights is a fixed tree, and the output a chain
// over keys. So a row's bits depend on its position and the data before it alone, not on the other rows of
// the block or on how a record is cut into passes.
// Launch: a block of 128 threads (16 × 8) takes kRows rows (a row is a query and one head of the group) of
// one piece and key/value head: thread (tx, ty) owns rows ty + 8·i and keys tx + 16·j. Reads q once and the
// keys and values once a block.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/check.h"
#include "kernels/cuda/kv_address.cuh"
#include "kernels/cuda/math.cuh"

namespace logitgate::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kColumnThreads = 16;
constexpr int kRowThreads = kThreads / kColumnThreads;

// Tile sizes for a head padded to D elements: within 99 KiB of shared memory, which every GPU from sm_80 on
// has.
template <class T, int D>
struct TileShape {
  static constexpr int kRows = sizeof(T) == 4 ? (D <= 128 ? 64 : 32) : (D <= 128 ? 32 : 16);
  static constexpr int kKeys = kRows;
  static constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  static constexpr int kRowsThread = kRows / kRowThreads;
  static constexpr int kKeysThread = kKeys / kColumnThreads;
  static constexpr int kVectorsThread =
      D / (kColumnThreads * kVector);           // output columns a thread, in vectors
  static constexpr int kStrideD = D + kVector;  // padded, so that rows fall into different banks
  static constexpr int kStrideP = kKeys + kVector;
  static constexpr size_t kSharedBytes =
      sizeof(T) * (static_cast<size_t>(kRows + kKeys) * kStrideD + kRows * kStrideP);
};

// Copies n_valid rows of head_dim elements (row r at from + r·row_stride) to shared rows of D, zeros
// elsewhere.
template <class T, int D, int ROWS, int STRIDE>
__device__ __forceinline__ void load_rows(T* to, const T* __restrict__ from, int n_valid, int head_dim) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(T));
  constexpr int kVectors = ROWS * (D / kVector);
  if (head_dim == D && n_valid == ROWS) {  // loads first, so that they are in flight together
    constexpr int kBatch = kVectors / kThreads % 8 == 0 ? 8 : kVectors / kThreads % 4 == 0 ? 4 : 1;
    static_assert(kVectors % (kBatch * kThreads) == 0);
#pragma unroll
    for (int first = 0; first < kVectors; first += kBatch * kThreads) {
      uint4 v[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; b++)
        v[b] = __ldg(reinterpret_cast<const uint4*>(from) + first + b * kThreads + threadIdx.x);
#pragma unroll
      for (int b = 0; b < kBatch; b++) {
        const int e = first + b * kThreads + static_cast<int>(threadIdx.x);
        *reinterpret_cast<uint4*>(to + e / (D / kVector) * STRIDE + e % (D / kVector) * kVector) = v[b];
      }
    }
  } else if (head_dim % kVector == 0) {
    for (int e = threadIdx.x; e < ROWS * (D / kVector); e += kThreads) {
      const int r = e / (D / kVector);
      const int d = e % (D / kVector) * kVector;
      uint4 v = {0, 0, 0, 0};
      if (r < n_valid && d < head_dim)
        v = *reinterpret_cast<const uint4*>(from + static_cast<int64_t>(r) * head_dim + d);
      *reinterpret_cast<uint4*>(to + r * STRIDE + d) = v;
    }
  } else {
    for (int e = threadIdx.x; e < ROWS * D; e += kThreads) {
      const int r = e / D;
      const int d = e % D;
      to[r * STRIDE + d] = r < n_valid && d < head_dim ? from[static_cast<int64_t>(r) * head_dim + d] : T(0);
    }
  }
}

// s[i][j] = Σ_d q[row i, d] · k[key j, d], d ascending.
template <class T, int D, class S = TileShape<T, D>>
__device__ __forceinline__ void scores(T (&s)[S::kRowsThread][S::kKeysThread], const T* qs, const T* ks,
                                       int tx, int ty) {
#pragma unroll
  for (int i = 0; i < S::kRowsThread; i++) {
#pragma unroll
    for (int j = 0; j < S::kKeysThread; j++) s[i][j] = T(0);
  }
#pragma unroll 2
  for (int d = 0; d < D; d += S::kVector) {
    alignas(16) T k[S::kKeysThread][S::kVector];
#pragma unroll
    for (int j = 0; j < S::kKeysThread; j++) {
      *reinterpret_cast<uint4*>(k[j]) =
          *reinterpret_cast<const uint4*>(ks + (tx + kColumnThreads * j) * S::kStrideD + d);
    }
#pragma unroll
    for (int i = 0; i < S::kRowsThread; i++) {
      alignas(16) T q[S::kVector];
      *reinterpret_cast<uint4*>(q) =
          *reinterpret_cast<const uint4*>(qs + (ty + kRowThreads * i) * S::kStrideD + d);
#pragma unroll
      for (int c = 0; c < S::kVector; c++) {
#pragma unroll
        for (int j = 0; j < S::kKeysThread; j++) s[i][j] = fma_rn(q[c], k[j][c], s[i][j]);
      }
    }
  }
}

// o[i][c] += Σ_key p[row i, key] · v[key, c], keys ascending. MASKED: keys past a row's own position add
// nothing, whatever they hold.
template <class T, int D, bool MASKED, class S = TileShape<T, D>>
__device__ __forceinline__ void accumulate(T (&o)[S::kRowsThread][S::kVectorsThread * S::kVector],
                                           const T* ps, const T* vs, const int (&last_key)[S::kRowsThread],
                                           int tx, int ty) {
#pragma unroll 1
  for (int key = 0; key < S::kKeys; key += S::kVector) {
    alignas(16) T p[S::kRowsThread][S::kVector];
#pragma unroll
    for (int i = 0; i < S::kRowsThread; i++) {
      *reinterpret_cast<uint4*>(p[i]) =
          *reinterpret_cast<const uint4*>(ps + (ty + kRowThreads * i) * S::kStrideP + key);
    }
#pragma unroll
    for (int c = 0; c < S::kVector; c++) {
#pragma unroll
      for (int n = 0; n < S::kVectorsThread; n++) {
        alignas(16) T v[S::kVector];
        *reinterpret_cast<uint4*>(v) = *reinterpret_cast<const uint4*>(
            vs + (key + c) * S::kStrideD + (tx + kColumnThreads * n) * S::kVector);
#pragma unroll
        for (int i = 0; i < S::kRowsThread; i++) {
#pragma unroll
          for (int e = 0; e < S::kVector; e++) {
            if (!MASKED || key + c <= last_key[i]) {
              o[i][n * S::kVector + e] = fma_rn(p[i][c], v[e], o[i][n * S::kVector + e]);
            }
          }
        }
      }
    }
  }
}

// The row's place: its query within the piece, or −1 past the end.
struct Row {
  int query;
  int head;
};
__device__ __forceinline__ Row row_of(const AttentionTile& tile, int row, int group) {
  const int index = tile.first_row + row;
  const int query = index / group;
  return {query < tile.n_tokens ? query : -1, index % group};
}

// One tile of keys: scores, the softmax's running maximum and sum, weights to shared memory, output rescaled.
template <class T, int D, class S = TileShape<T, D>>
__device__ __forceinline__ void softmax_step(T (&s)[S::kRowsThread][S::kKeysThread],
                                             T (&o)[S::kRowsThread][S::kVectorsThread * S::kVector],
                                             T (&maximum)[S::kRowsThread], T (&sum)[S::kRowsThread],
                                             const int (&last_key)[S::kRowsThread], T scale, T* ps, int tx,
                                             int ty) {
#pragma unroll
  for (int i = 0; i < S::kRowsThread; i++) {
    T tile_max = -infinity<T>();
#pragma unroll
    for (int j = 0; j < S::kKeysThread; j++) {
      s[i][j] = tx + kColumnThreads * j <= last_key[i] ? mul_rn(s[i][j], scale) : -infinity<T>();
      tile_max = max_of(tile_max, s[i][j]);
    }
    const T new_max = max_of(maximum[i], group_max<kColumnThreads>(tile_max));
    const bool visible = last_key[i] >= 0;  // else the whole tile is past the row, which must not change
    const T rescale = visible ? exp_rn(maximum[i] - new_max) : T(1);
    T tile_sum = T(0);
#pragma unroll
    for (int j = 0; j < S::kKeysThread; j++) {
      const T p = tx + kColumnThreads * j <= last_key[i] ? exp_rn(s[i][j] - new_max) : T(0);
      tile_sum = add_rn(tile_sum, p);
      ps[(ty + kRowThreads * i) * S::kStrideP + tx + kColumnThreads * j] = p;
    }
    tile_sum = group_sum<kColumnThreads>(tile_sum);
    if (visible) {
      sum[i] = fma_rn(sum[i], rescale, tile_sum);
      maximum[i] = new_max;
    }
#pragma unroll
    for (int c = 0; c < S::kVectorsThread * S::kVector; c++) o[i][c] = mul_rn(o[i][c], rescale);
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kThreads)
    attention_kernel(T* __restrict__ out, const T* __restrict__ q, const KvView kv, const AttentionArgs args,
                     const AttentionTile* __restrict__ tiles) {
  using S = TileShape<T, D>;
  extern __shared__ uint4 shared[];
  T* const qs = reinterpret_cast<T*>(shared);
  T* const kvs = qs + S::kRows * S::kStrideD;
  T* const ps = kvs + S::kKeys * S::kStrideD;
  const AttentionTile tile = tiles[blockIdx.x];
  const int head_kv = blockIdx.y;
  const int group = args.n_head / args.n_head_kv;
  const int tx = threadIdx.x % kColumnThreads;
  const int ty = threadIdx.x / kColumnThreads;
  for (int r = threadIdx.x / 32; r < S::kRows; r += kThreads / 32) {  // a warp a query row
    const Row row = row_of(tile, r, group);
    const int64_t at =
        (static_cast<int64_t>(tile.first_token + row.query) * args.n_head + head_kv * group + row.head) *
        args.head_dim;
    for (int d = threadIdx.x % 32; d < D; d += 32) {
      qs[r * S::kStrideD + d] = row.query >= 0 && d < args.head_dim ? q[at + d] : T(0);
    }
  }
  int position[S::kRowsThread];
  T maximum[S::kRowsThread];
  T sum[S::kRowsThread];
  T o[S::kRowsThread][S::kVectorsThread * S::kVector];
#pragma unroll
  for (int i = 0; i < S::kRowsThread; i++) {
    const Row row = row_of(tile, ty + kRowThreads * i, group);
    position[i] = row.query >= 0 ? tile.first_position + row.query : 0;
    maximum[i] = -infinity<T>();
    sum[i] = T(0);
#pragma unroll
    for (int c = 0; c < S::kVectorsThread * S::kVector; c++) o[i][c] = T(0);
  }
  const int first_query = tile.first_row / group;
  const int last_query = min(tile.n_tokens - 1, (tile.first_row + S::kRows - 1) / group);
  const int n_keys = tile.first_position + last_query + 1;
  const T* const k_head = kv_head<T>(kv, tile.slot, args.layer, 0, head_kv);
  const T* const v_head = kv_head<T>(kv, tile.slot, args.layer, 1, head_kv);
  for (int first_key = 0; first_key < n_keys; first_key += S::kKeys) {
    const int n_valid = min(S::kKeys, n_keys - first_key);
    __syncthreads();
    load_rows<T, D, S::kKeys, S::kStrideD>(kvs, k_head + static_cast<int64_t>(first_key) * args.head_dim,
                                           n_valid, args.head_dim);
    __syncthreads();
    T s[S::kRowsThread][S::kKeysThread];
    scores<T, D>(s, qs, kvs, tx, ty);
    int last_key[S::kRowsThread];
#pragma unroll
    for (int i = 0; i < S::kRowsThread; i++) last_key[i] = position[i] - first_key;
    softmax_step<T, D>(s, o, maximum, sum, last_key, static_cast<T>(args.scale), ps, tx, ty);
    __syncthreads();
    load_rows<T, D, S::kKeys, S::kStrideD>(kvs, v_head + static_cast<int64_t>(first_key) * args.head_dim,
                                           n_valid, args.head_dim);
    __syncthreads();
    if (first_key + S::kKeys - 1 > tile.first_position + first_query) {
      accumulate<T, D, true>(o, ps, kvs, last_key, tx, ty);
    } else {
      accumulate<T, D, false>(o, ps, kvs, last_key, tx, ty);
    }
  }
#pragma unroll
  for (int i = 0; i < S::kRowsThread; i++) {
    const Row row = row_of(tile, ty + kRowThreads * i, group);
    if (row.query < 0) continue;
    T* const to = out + (static_cast<int64_t>(tile.first_token + row.query) * args.n_head + head_kv * group +
                         row.head) *
                            args.head_dim;
#pragma unroll
    for (int c = 0; c < S::kVectorsThread * S::kVector; c++) {
      const int d = (tx + kColumnThreads * (c / S::kVector)) * S::kVector + c % S::kVector;
      if (d < args.head_dim) to[d] = div_rn(o[i][c], sum[i]);
    }
  }
}

template <class T, int D>
void launch(T* out, const T* q, const KvView& kv, const AttentionArgs& args, const AttentionTile* tiles,
            int64_t n_tiles, cudaStream_t stream) {
  constexpr size_t kBytes = TileShape<T, D>::kSharedBytes;
  static_assert(kBytes <= 99 * 1024);
  LOGITGATE_CUDA(cudaFuncSetAttribute(attention_kernel<T, D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(kBytes)));
  const dim3 grid(static_cast<unsigned>(n_tiles), static_cast<unsigned>(args.n_head_kv));
  attention_kernel<T, D><<<grid, kThreads, kBytes, stream>>>(out, q, kv, args, tiles);
  check_launch("attention");
}

}  // namespace

template <class T>
int32_t attention_tile_rows(int32_t head_dim) {
  return head_dim <= 64    ? TileShape<T, 64>::kRows
         : head_dim <= 128 ? TileShape<T, 128>::kRows
                           : TileShape<T, 256>::kRows;
}

template <class T>
void attention(T* out, const T* q, const KvView& kv, const AttentionArgs& args, const AttentionTile* tiles,
               int64_t n_tiles, cudaStream_t stream) {
  if (n_tiles == 0) return;
  if (args.head_dim <= 64) {
    launch<T, 64>(out, q, kv, args, tiles, n_tiles, stream);
  } else if (args.head_dim <= 128) {
    launch<T, 128>(out, q, kv, args, tiles, n_tiles, stream);
  } else {
    launch<T, 256>(out, q, kv, args, tiles, n_tiles, stream);
  }
}

template int32_t attention_tile_rows<float>(int32_t);
template int32_t attention_tile_rows<double>(int32_t);
template void attention<float>(float*, const float*, const KvView&, const AttentionArgs&,
                               const AttentionTile*, int64_t, cudaStream_t);
template void attention<double>(double*, const double*, const KvView&, const AttentionArgs&,
                                const AttentionTile*, int64_t, cudaStream_t);

}  // namespace logitgate::cuda
