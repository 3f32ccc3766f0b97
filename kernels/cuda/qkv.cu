// What follows the QKV projection: per-head norms, rotation and the store into the cache, one by one and
// fused.
// Contract: kernels/cuda/ops.h. A warp takes one head of one token; the fused kernel gives the bits of the
// single ones, since both use the same reduction and the same written-out rounding. Bound by memory: q, k, v
// are read once and written once.
#include "kernels/cuda/check.h"
#include "kernels/cuda/kv_address.cuh"
#include "kernels/cuda/rms_norm.cuh"

namespace logitgate::cuda {
namespace {

constexpr int kThreads = 256;

// The rotated value of element i of a head whose values lie at x (global or shared memory).
template <class T>
__device__ __forceinline__ T rotated(const T* x, int32_t i, const RopeView& rope, int32_t position) {
  if (i >= rope.n_rot) return x[i];
  const int32_t n_pair = rope.n_rot / 2;
  const int32_t pair = rope.interleaved ? i / 2 : i % n_pair;
  const bool second = rope.interleaved ? i % 2 != 0 : i >= n_pair;
  const int64_t at = static_cast<int64_t>(position) * n_pair + pair;
  const T c = static_cast<const T*>(rope.cos)[at];
  const T s = static_cast<const T*>(rope.sin)[at];
  const T x0 = x[rope.interleaved ? 2 * pair : pair];
  const T x1 = x[rope.interleaved ? 2 * pair + 1 : pair + n_pair];
  return second ? fma_rn(x1, c, mul_rn(x0, s)) : fma_rn(x0, c, mul_rn(-x1, s));
}

// A warp a head: the head is staged in shared memory, since a rotation mixes two elements.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(T* x, RopeView rope, const int32_t* __restrict__ position, int64_t n_heads_total,
                int32_t n_head, int32_t head_dim) {
  extern __shared__ double shared[];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + warp;
  if (index >= n_heads_total) return;
  T* const stage = reinterpret_cast<T*>(shared) + warp * head_dim;
  T* const head = x + index * head_dim;
  for (int32_t i = lane; i < head_dim; i += 32) stage[i] = head[i];
  __syncwarp();
  const int32_t p = position[index / n_head];
  for (int32_t i = lane; i < rope.n_rot; i += 32) head[i] = rotated(stage, i, rope, p);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    store_kv_kernel(KvView kv, int32_t layer, const T* __restrict__ k, const T* __restrict__ v,
                    const int32_t* __restrict__ position, const int32_t* __restrict__ slot) {
  const int32_t token = blockIdx.x;
  const int32_t n = kv.n_head_kv * kv.head_dim;
  for (int32_t i = threadIdx.x; i < n; i += kThreads) {
    const int32_t head = i / kv.head_dim;
    const int64_t at = static_cast<int64_t>(position[token]) * kv.head_dim + i % kv.head_dim;
    kv_head<T>(kv, slot[token], layer, 0, head)[at] = k[static_cast<int64_t>(token) * n + i];
    kv_head<T>(kv, slot[token], layer, 1, head)[at] = v[static_cast<int64_t>(token) * n + i];
  }
}

// Norms (where there is a weight) and stages one head in shared memory.
template <class T>
__device__ __forceinline__ void stage_normed(T* stage, const T* head, const WeightView& norm, T eps,
                                             int32_t head_dim, int lane) {
  T v[kWarpNormMax / 32];
#pragma unroll
  for (int j = 0; j < kWarpNormMax / 32; j++) v[j] = lane + 32 * j < head_dim ? head[lane + 32 * j] : T(0);
  if (norm.data != nullptr) {
    const T scale = warp_rms_scale(v, head_dim, eps);
#pragma unroll
    for (int j = 0; j < kWarpNormMax / 32; j++) {
      if (lane + 32 * j < head_dim)
        v[j] = mul_rn(mul_rn(v[j], scale), static_cast<T>(read_weight(norm, 0, lane + 32 * j)));
    }
  }
#pragma unroll
  for (int j = 0; j < kWarpNormMax / 32; j++) {
    if (lane + 32 * j < head_dim) stage[lane + 32 * j] = v[j];
  }
  __syncwarp();
}

// A warp a (token, head): n_head query heads, then the key heads, then the value heads.
template <class T>
__global__ void __launch_bounds__(kThreads)
    finish_qkv_kernel(T* q, const T* k, const T* v, KvView kv, QkvFinish finish, BatchView batch) {
  extern __shared__ double shared[];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int32_t n_heads = finish.n_head + 2 * kv.n_head_kv;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + warp;
  if (index >= static_cast<int64_t>(batch.n_tokens) * n_heads) return;
  const int32_t token = static_cast<int32_t>(index / n_heads);
  int32_t head = static_cast<int32_t>(index % n_heads);
  const int32_t head_dim = kv.head_dim;
  const int32_t p = batch.position[token];
  T* const stage = reinterpret_cast<T*>(shared) + warp * head_dim;
  if (head < finish.n_head) {
    T* const out = q + (static_cast<int64_t>(token) * finish.n_head + head) * head_dim;
    stage_normed(stage, out, finish.q_norm, static_cast<T>(finish.eps), head_dim, lane);
    for (int32_t i = lane; i < head_dim; i += 32) out[i] = rotated(stage, i, finish.rope, p);
    return;
  }
  head -= finish.n_head;
  const bool value = head >= kv.n_head_kv;
  if (value) head -= kv.n_head_kv;
  const T* const from = (value ? v : k) + (static_cast<int64_t>(token) * kv.n_head_kv + head) * head_dim;
  T* const out = kv_head<T>(kv, batch.slot[token], finish.layer, value ? 1 : 0, head) +
                 static_cast<int64_t>(p) * head_dim;
  if (value) {
    for (int32_t i = lane; i < head_dim; i += 32) out[i] = from[i];
    return;
  }
  stage_normed(stage, from, finish.k_norm, static_cast<T>(finish.eps), head_dim, lane);
  for (int32_t i = lane; i < head_dim; i += 32) out[i] = rotated(stage, i, finish.rope, p);
}

unsigned blocks_of_warps(int64_t n_warps) {
  return static_cast<unsigned>((n_warps + kThreads / 32 - 1) / (kThreads / 32));
}

template <class T>
size_t stage_bytes(int32_t head_dim) {
  return sizeof(T) * static_cast<size_t>(head_dim) * (kThreads / 32);
}

}  // namespace

template <class T>
void rope(T* x, const RopeView& rope, const BatchView& batch, int32_t n_head, int32_t head_dim,
          cudaStream_t stream) {
  const int64_t n = static_cast<int64_t>(batch.n_tokens) * n_head;
  if (n == 0) return;
  rope_kernel<T><<<blocks_of_warps(n), kThreads, stage_bytes<T>(head_dim), stream>>>(x, rope, batch.position,
                                                                                     n, n_head, head_dim);
  check_launch("rope");
}

template <class T>
void store_kv(const KvView& kv, int32_t layer, const T* k, const T* v, const BatchView& batch,
              cudaStream_t stream) {
  if (batch.n_tokens == 0) return;
  store_kv_kernel<T><<<static_cast<unsigned>(batch.n_tokens), kThreads, 0, stream>>>(
      kv, layer, k, v, batch.position, batch.slot);
  check_launch("store_kv");
}

template <class T>
void finish_qkv(T* q, const T* k, const T* v, const KvView& kv, const QkvFinish& finish,
                const BatchView& batch, cudaStream_t stream) {
  const int64_t n = static_cast<int64_t>(batch.n_tokens) * (finish.n_head + 2 * kv.n_head_kv);
  if (n == 0) return;
  finish_qkv_kernel<T>
      <<<blocks_of_warps(n), kThreads, stage_bytes<T>(kv.head_dim), stream>>>(q, k, v, kv, finish, batch);
  check_launch("finish_qkv");
}

template void rope<float>(float*, const RopeView&, const BatchView&, int32_t, int32_t, cudaStream_t);
template void rope<double>(double*, const RopeView&, const BatchView&, int32_t, int32_t, cudaStream_t);
template void store_kv<float>(const KvView&, int32_t, const float*, const float*, const BatchView&,
                              cudaStream_t);
template void store_kv<double>(const KvView&, int32_t, const double*, const double*, const BatchView&,
                               cudaStream_t);
template void finish_qkv<float>(float*, const float*, const float*, const KvView&, const QkvFinish&,
                                const BatchView&, cudaStream_t);
template void finish_qkv<double>(double*, const double*, const double*, const KvView&, const QkvFinish&,
                                 const BatchView&, cudaStream_t);

}  // namespace logitgate::cuda
