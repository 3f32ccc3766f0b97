// Causal attention of many queries over the cache on tensor cores, for the precisions that round the operands
// of matrix products.
// Contract: as attention.cu, except that q, k, v and the softmax's weights are rounded to tf32 or bf16 before
// they are multiplied; sums, maxima and the running output stay f32. Head sizes up to 128.
// Order: keys in tiles of 64 at multiples of 64 from position 0; within a tile the tensor cores' fixed order;
// sums of weights by a fixed tree. Each row of an mma depends on its own operands alone, so a row's bits
// depend on its position and the data before it. Values that are not finite would leak through 0 · Inf into
// rows that must not see them: in tiles that hold some row's own position they are taken out of the product
// and added to the rows that do see them.
// Launch: a block of 4 warps takes 64 rows (a row is a query and one head of the group) of one piece and
// key/value head, a warp 16 of them.
#include "kernels/cuda/check.h"
#include "kernels/cuda/kv_address.cuh"
#include "kernels/cuda/math.cuh"

namespace logitgate::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = 64;
constexpr int kKeys = 64;

template <Rounding R>
struct OperandOf {
  using type = float;
};
template <>
struct OperandOf<Rounding::bf16> {
  using type = uint16_t;
};

template <Rounding R, int D>
struct MmaShape {
  using Operand = typename OperandOf<R>::type;
  static constexpr int kHalf =
      16 / static_cast<int>(sizeof(Operand));  // operands in 16 bytes: half of an mma's depth
  static constexpr int kDepth = 2 * kHalf;
  static constexpr int kStride = D + kHalf;  // padded, so that rows fall into different banks
  static constexpr size_t kSharedBytes = sizeof(Operand) * (kRows + kKeys) * kStride;
};

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p))
               : "memory");
}
__device__ __forceinline__ void load_transposed(unsigned (&r)[4], const void* p) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(p))
               : "memory");
}

// d [16, 8] += a [16, depth] · b [depth, 8]
template <Rounding R>
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (R == Rounding::bf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

__device__ __forceinline__ unsigned pack_bf16(float low, float high) {
  return static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(low))) |
         static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(high))) << 16;
}

template <Rounding R>
__device__ __forceinline__ void store_four(typename OperandOf<R>::type* to, float4 v) {
  if constexpr (R == Rounding::bf16) {
    *reinterpret_cast<uint2*>(to) = {pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)};
  } else {
    *reinterpret_cast<float4*>(to) = {round_operand<R>(v.x), round_operand<R>(v.y), round_operand<R>(v.z),
                                      round_operand<R>(v.w)};
  }
}

// Elements [d, d + 4) of a row of head_dim; zeros past its end.
__device__ __forceinline__ float4 read_four(const float* __restrict__ row, int d, int head_dim) {
  if (head_dim % 4 == 0) return d < head_dim ? *reinterpret_cast<const float4*>(row + d) : float4{0, 0, 0, 0};
  float v[4];
#pragma unroll
  for (int c = 0; c < 4; c++) v[c] = d + c < head_dim ? row[d + c] : 0.0f;
  return {v[0], v[1], v[2], v[3]};
}

__device__ __forceinline__ bool is_finite(float v) { return fabsf(v) < infinity<float>(); }
__device__ __forceinline__ float finite_or_zero(float v) { return is_finite(v) ? v : 0.0f; }

// A tile of keys or values into shared memory, rounded. CLEAN: values that are not finite become 0, and it
// says whether there were any.
template <Rounding R, int D, bool CLEAN>
__device__ __forceinline__ bool load_tile(typename OperandOf<R>::type* to, const float* __restrict__ from,
                                          int n_valid, int head_dim) {
  static_assert(kKeys * D / 4 % (8 * kThreads) == 0);
  constexpr int kStride = MmaShape<R, D>::kStride;
  bool dirty = false;
  const auto put = [&](int e, float4 v) {
    if constexpr (CLEAN) {
      dirty = dirty || !(is_finite(v.x) && is_finite(v.y) && is_finite(v.z) && is_finite(v.w));
      v = {finite_or_zero(v.x), finite_or_zero(v.y), finite_or_zero(v.z), finite_or_zero(v.w)};
    }
    store_four<R>(to + e / (D / 4) * kStride + e % (D / 4) * 4, v);
  };
  if (head_dim == D && n_valid == kKeys) {  // loads first, so that they are in flight together
    constexpr int kBatch = 8;
#pragma unroll
    for (int first = 0; first < kKeys * D / 4; first += kBatch * kThreads) {
      float4 v[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; b++)
        v[b] = __ldg(reinterpret_cast<const float4*>(from) + first + b * kThreads + threadIdx.x);
#pragma unroll
      for (int b = 0; b < kBatch; b++) put(first + b * kThreads + static_cast<int>(threadIdx.x), v[b]);
    }
    return dirty;
  }
  for (int e = threadIdx.x; e < kKeys * D / 4; e += kThreads) {
    const int r = e / (D / 4);
    const int d = e % (D / 4) * 4;
    put(e,
        r < n_valid ? read_four(from + static_cast<int64_t>(r) * head_dim, d, head_dim) : float4{0, 0, 0, 0});
  }
  return dirty;
}

// s[n] = the warp's 16 rows times keys [8n, 8n + 8)
template <Rounding R, int D>
__device__ __forceinline__ void scores(float (&s)[kKeys / 8][4], const typename OperandOf<R>::type* q,
                                       const typename OperandOf<R>::type* k, int lane) {
  using S = MmaShape<R, D>;
#pragma unroll
  for (int n = 0; n < kKeys / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
  const auto* const q_at = q + (lane % 16) * S::kStride + lane / 16 * S::kHalf;
  const auto* const k_at = k + (lane % 8 + lane / 16 * 8) * S::kStride + lane / 8 % 2 * S::kHalf;
#pragma unroll
  for (int d = 0; d < D; d += S::kDepth) {
    unsigned a[4];
    load_matrices(a, q_at + d);
#pragma unroll
    for (int n = 0; n < kKeys / 8; n += 2) {
      unsigned b[4];
      load_matrices(b, k_at + n * 8 * S::kStride + d);
      multiply<R>(s[n], a, b[0], b[1]);
      multiply<R>(s[n + 1], a, b[2], b[3]);
    }
  }
}

// o[n] += weights · values, columns [8n, 8n + 8). In tf32 the depth's index runs over keys 2t, 2t + 1 where
// the fragment's own is t, t + 4: both operands are read in that order, so that the scores' registers serve
// as they are.
template <Rounding R, int D>
__device__ __forceinline__ void accumulate(float (&o)[D / 8][4], const float (&p)[kKeys / 8][4],
                                           const typename OperandOf<R>::type* v, int lane) {
  using S = MmaShape<R, D>;
  if constexpr (R == Rounding::bf16) {
    const auto* const v_at = v + (lane % 8 + lane / 8 % 2 * 8) * S::kStride + lane / 16 * 8;
#pragma unroll
    for (int n = 0; n < kKeys / 8; n += 2) {
      const unsigned a[4] = {pack_bf16(p[n][0], p[n][1]), pack_bf16(p[n][2], p[n][3]),
                             pack_bf16(p[n + 1][0], p[n + 1][1]), pack_bf16(p[n + 1][2], p[n + 1][3])};
#pragma unroll
      for (int c = 0; c < D / 8; c += 2) {
        unsigned b[4];
        load_transposed(b, v_at + n * 8 * S::kStride + c * 8);
        multiply<R>(o[c], a, b[0], b[1]);
        multiply<R>(o[c + 1], a, b[2], b[3]);
      }
    }
  } else {
    const float* const v_at = v + lane % 4 * 2 * S::kStride + lane / 4;
#pragma unroll
    for (int n = 0; n < kKeys / 8; n++) {
      const unsigned a[4] = {
          __float_as_uint(round_operand<R>(p[n][0])), __float_as_uint(round_operand<R>(p[n][2])),
          __float_as_uint(round_operand<R>(p[n][1])), __float_as_uint(round_operand<R>(p[n][3]))};
#pragma unroll
      for (int c = 0; c < D / 8; c++) {
        const float* const at = v_at + n * 8 * S::kStride + c * 8;
        multiply<R>(o[c], a, __float_as_uint(at[0]), __float_as_uint(at[S::kStride]));
      }
    }
  }
}

// The softmax's step for one of a thread's two rows (elements first and first + 1 of each fragment): s
// becomes weights.
template <int D>
__device__ __forceinline__ void softmax_step(float (&s)[kKeys / 8][4], float (&o)[D / 8][4], float& maximum,
                                             float& sum, int first, int last_key, float scale, int lane) {
  float tile_max = -infinity<float>();
#pragma unroll
  for (int n = 0; n < kKeys / 8; n++) {
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const bool visible = n * 8 + lane % 4 * 2 + e <= last_key;
      s[n][first + e] = visible ? mul_rn(s[n][first + e], scale) : -infinity<float>();
      tile_max = max_of(tile_max, s[n][first + e]);
    }
  }
  const float new_max = max_of(maximum, group_max<4>(tile_max));
  const bool any = last_key >= 0;  // else the whole tile is past the row, which must not change
  const float rescale = any ? exp_rn(maximum - new_max) : 1.0f;
  float tile_sum = 0.0f;
#pragma unroll
  for (int n = 0; n < kKeys / 8; n++) {
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const bool visible = n * 8 + lane % 4 * 2 + e <= last_key;
      s[n][first + e] = visible ? exp_rn(s[n][first + e] - new_max) : 0.0f;
      tile_sum = add_rn(tile_sum, s[n][first + e]);
    }
  }
  tile_sum = group_sum<4>(tile_sum);
  if (any) {
    sum = fma_rn(sum, rescale, tile_sum);
    maximum = new_max;
  }
#pragma unroll
  for (int c = 0; c < D / 8; c++) {
    o[c][first] = mul_rn(o[c][first], rescale);
    o[c][first + 1] = mul_rn(o[c][first + 1], rescale);
  }
}

// Adds the values that are not finite to the rows that see them.
template <int D>
__device__ void add_not_finite(float (&o)[D / 8][4], const float* __restrict__ values, int n_valid,
                               int head_dim, const int (&last_key)[2], int lane) {
  for (int key = 0; key < n_valid; key++) {
#pragma unroll
    for (int c = 0; c < D / 8; c++) {
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int d = c * 8 + lane % 4 * 2 + e % 2;
        if (d >= head_dim || key > last_key[e / 2]) continue;
        const float v = values[static_cast<int64_t>(key) * head_dim + d];
        if (!is_finite(v)) o[c][e] = add_rn(o[c][e], v);
      }
    }
  }
}

struct Row {
  int query;  // within the piece; −1 past its end
  int head;
};
__device__ __forceinline__ Row row_of(const AttentionTile& tile, int row, int group) {
  const int index = tile.first_row + row;
  const int query = index / group;
  return {query < tile.n_tokens ? query : -1, index % group};
}

template <Rounding R, int D>
__global__ void __launch_bounds__(kThreads)
    attention_mma_kernel(float* __restrict__ out, const float* __restrict__ q, const KvView kv,
                         const AttentionArgs args, const AttentionTile* __restrict__ tiles) {
  using S = MmaShape<R, D>;
  using Operand = typename S::Operand;
  extern __shared__ uint4 shared[];
  Operand* const qs = reinterpret_cast<Operand*>(shared);
  Operand* const kvs = qs + kRows * S::kStride;
  const AttentionTile tile = tiles[blockIdx.x];
  const int head_kv = blockIdx.y;
  const int group = args.n_head / args.n_head_kv;
  const int head_dim = args.head_dim;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const auto global_row = [&](const Row& row) {
    return (static_cast<int64_t>(tile.first_token + row.query) * args.n_head + head_kv * group + row.head) *
           head_dim;
  };
  for (int e = threadIdx.x; e < kRows * D / 4; e += kThreads) {
    const int r = e / (D / 4);
    const int d = e % (D / 4) * 4;
    const Row row = row_of(tile, r, group);
    store_four<R>(qs + r * S::kStride + d,
                  row.query >= 0 ? read_four(q + global_row(row), d, head_dim) : float4{0, 0, 0, 0});
  }
  Row rows[2];
  int position[2];
  float maximum[2];
  float sum[2];
  float o[D / 8][4];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    rows[i] = row_of(tile, warp * 16 + lane / 4 + 8 * i, group);
    position[i] = rows[i].query >= 0 ? tile.first_position + rows[i].query : 0;
    maximum[i] = -infinity<float>();
    sum[i] = 0.0f;
  }
#pragma unroll
  for (int c = 0; c < D / 8; c++) o[c][0] = o[c][1] = o[c][2] = o[c][3] = 0.0f;
  const int first_position = tile.first_position + tile.first_row / group;
  const int n_keys = tile.first_position + min(tile.n_tokens - 1, (tile.first_row + kRows - 1) / group) + 1;
  const float* const k_head = kv_head<float>(kv, tile.slot, args.layer, 0, head_kv);
  const float* const v_head = kv_head<float>(kv, tile.slot, args.layer, 1, head_kv);
  for (int first_key = 0; first_key < n_keys; first_key += kKeys) {
    const int n_valid = min(kKeys, n_keys - first_key);
    const float* const values = v_head + static_cast<int64_t>(first_key) * head_dim;
    __syncthreads();
    load_tile<R, D, false>(kvs, k_head + static_cast<int64_t>(first_key) * head_dim, n_valid, head_dim);
    __syncthreads();
    float s[kKeys / 8][4];
    scores<R, D>(s, qs + warp * 16 * S::kStride, kvs, lane);
    const int last_key[2] = {position[0] - first_key, position[1] - first_key};
#pragma unroll
    for (int i = 0; i < 2; i++)
      softmax_step<D>(s, o, maximum[i], sum[i], 2 * i, last_key[i], static_cast<float>(args.scale), lane);
    __syncthreads();
    bool dirty = false;
    if (first_key + kKeys - 1 > first_position) {
      dirty = load_tile<R, D, true>(kvs, values, n_valid, head_dim);
    } else {
      load_tile<R, D, false>(kvs, values, n_valid, head_dim);
    }
    dirty = __syncthreads_or(dirty);
    accumulate<R, D>(o, s, kvs, lane);
    if (dirty) add_not_finite<D>(o, values, n_valid, head_dim, last_key, lane);
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    if (rows[i].query < 0) continue;
    float* const to = out + global_row(rows[i]);
#pragma unroll
    for (int c = 0; c < D / 8; c++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const int d = c * 8 + lane % 4 * 2 + e;
        if (d < head_dim) to[d] = div_rn(o[c][2 * i + e], sum[i]);
      }
    }
  }
}

template <Rounding R, int D>
void launch(float* out, const float* q, const KvView& kv, const AttentionArgs& args,
            const AttentionTile* tiles, int64_t n_tiles, cudaStream_t stream) {
  constexpr size_t kBytes = MmaShape<R, D>::kSharedBytes;
  static_assert(kBytes <= 99 * 1024);
  LOGITGATE_CUDA(cudaFuncSetAttribute(attention_mma_kernel<R, D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(kBytes)));
  const dim3 grid(static_cast<unsigned>(n_tiles), static_cast<unsigned>(args.n_head_kv));
  attention_mma_kernel<R, D><<<grid, kThreads, kBytes, stream>>>(out, q, kv, args, tiles);
  check_launch("attention_mma");
}

}  // namespace

int32_t attention_mma_tile_rows() { return kRows; }

void attention_mma(float* out, const float* q, const KvView& kv, const AttentionArgs& args, Rounding rounding,
                   const AttentionTile* tiles, int64_t n_tiles, cudaStream_t stream) {
  if (n_tiles == 0) return;
  const bool small = args.head_dim <= 64;
  if (rounding == Rounding::bf16) {
    small ? launch<Rounding::bf16, 64>(out, q, kv, args, tiles, n_tiles, stream)
          : launch<Rounding::bf16, 128>(out, q, kv, args, tiles, n_tiles, stream);
  } else {
    small ? launch<Rounding::tf32, 64>(out, q, kv, args, tiles, n_tiles, stream)
          : launch<Rounding::tf32, 128>(out, q, kv, args, tiles, n_tiles, stream);
  }
}

}  // namespace logitgate::cuda
