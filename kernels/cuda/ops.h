// Launchers of the CUDA kernels, one group a file; plain pointers and shapes, no state.
// Contract: T is float or double, every pointer is device memory, activations are token-major. A launcher
// enqueues on `stream` and throws Error{resource} where the launch itself fails. The bits of one token's
// result depend on that token's record alone: every reduction has an order fixed by the shape (and, in
// attention, by the position).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "formats/quant/weight_type.h"

namespace logitgate::cuda {

// How the operands of a matrix product are rounded before it: not at all (f32, f64), to 10 or to 7 explicit
// mantissa bits.
enum class Rounding { none, tf32, bf16 };

// A resident weight matrix. Q8_0 lies split, so that loads are wide: n_out·n_in signed bytes, then one f16
// scale a block of 32 (the file's bits, in another order); other types lie as in the file.
struct WeightView {
  const void* data = nullptr;
  WeightType type = WeightType::F32;
  int64_t n_in = 0;
  int64_t n_out = 0;

  const uint16_t* scales() const {
    return reinterpret_cast<const uint16_t*>(static_cast<const int8_t*>(data) + n_in * n_out);
  }
};

// The tokens of the pass, in device memory, [n_tokens] each.
struct BatchView {
  const int32_t* tokens = nullptr;
  const int32_t* position = nullptr;
  const int32_t* slot = nullptr;
  int32_t n_tokens = 0;
};

// The cache of keys and values: slot s is one allocation of [n_layer, 2, n_head_kv, capacity[s], head_dim].
struct KvView {
  void* const* base = nullptr;
  const int32_t* capacity = nullptr;
  int32_t n_head_kv = 0;
  int32_t head_dim = 0;
};

struct RopeView {
  const void* cos = nullptr;  // [n_positions, n_rot/2] of T
  const void* sin = nullptr;
  int32_t n_rot = 0;
  bool interleaved = false;
};

// device.cc: launches an empty kernel, to learn whether this build has code for the current GPU.
cudaError_t probe_kernel_image();

// dequantize.cu
// ------------------------------------------------------------------------------------------------ out[r, i]
// = w[first_row + r, i] exactly, for n_rows rows; bf16 rounds to nearest even.
void dequantize_f32(float* out, const WeightView& w, int64_t first_row, int64_t n_rows, cudaStream_t stream);
void dequantize_f64(double* out, const WeightView& w, int64_t first_row, int64_t n_rows, cudaStream_t stream);
void dequantize_bf16(uint16_t* out, const WeightView& w, int64_t first_row, int64_t n_rows,
                     cudaStream_t stream);
// The GEMM's bf16 operand of n floats, round to nearest even.
void round_to_bf16(uint16_t* out, const float* x, int64_t n, cudaStream_t stream);
// Splits n_blocks Q8_0 blocks of the file (34 bytes each) into quants and scales.
void split_q8_0(int8_t* quants, uint16_t* scales, const void* blocks, int64_t n_blocks, cudaStream_t stream);

// embed.cu
// ----------------------------------------------------------------------------------------------------- x[t]
// = scale · w[tokens[t]]
template <class T>
void embed(T* x, const WeightView& w, const BatchView& batch, T scale, cudaStream_t stream);
// y[r] = x[rows[r]], rows of n_cols
template <class T>
void gather_rows(T* y, const T* x, const int32_t* rows, int64_t n_rows, int64_t n_cols, cudaStream_t stream);

// rms_norm.cu
// -------------------------------------------------------------------------------------------------- y[g] =
// x[g] / sqrt(mean(x[g]²) + eps) · w for n_groups groups of n; y may be x
template <class T>
void rms_norm(T* y, const T* x, const WeightView& w, int64_t n_groups, int64_t n, T eps, cudaStream_t stream);
// x += y, then h = rms_norm(x, w, eps), row by row
template <class T>
void add_rms_norm(T* h, T* x, const T* y, const WeightView& w, int64_t n_rows, int64_t n, T eps,
                  cudaStream_t stream);

// elementwise.cu
// ----------------------------------------------------------------------------------------------- y = gate /
// (1 + exp(-gate)) · up
template <class T>
void swiglu(T* y, const T* gate, const T* up, int64_t n, cudaStream_t stream);
template <class T>
void add(T* x, const T* y, int64_t n, cudaStream_t stream);

// qkv.cu
// -------------------------------------------------------------------------------------------------------
// Rotates x [n_tokens, n_head·head_dim] in place.
template <class T>
void rope(T* x, const RopeView& rope, const BatchView& batch, int32_t n_head, int32_t head_dim,
          cudaStream_t stream);
// Writes k and v [n_tokens, n_head_kv·head_dim] of `layer` into the cache.
template <class T>
void store_kv(const KvView& kv, int32_t layer, const T* k, const T* v, const BatchView& batch,
              cudaStream_t stream);
// All of it at once: q = rope(norm(q)) in place, rope(norm(k)) and v into the cache. Absent norms have data =
// nullptr.
struct QkvFinish {
  WeightView q_norm, k_norm;
  double eps = 0;
  RopeView rope;
  int32_t layer = 0;
  int32_t n_head = 0;
};
template <class T>
void finish_qkv(T* q, const T* k, const T* v, const KvView& kv, const QkvFinish& finish,
                const BatchView& batch, cudaStream_t stream);

// attention.cu
// ------------------------------------------------------------------------------------------------- One
// block's work: rows [first_row, …) of a piece, a row being (query, head within the group), query-major.
struct AttentionTile {
  int32_t first_token = 0;     // of the piece, in the batch
  int32_t first_position = 0;  // of the piece
  int32_t n_tokens = 0;        // of the piece
  int32_t slot = 0;
  int32_t first_row = 0;  // of this tile
};
struct AttentionArgs {
  int32_t layer = 0;
  int32_t n_head = 0;
  int32_t n_head_kv = 0;
  int32_t head_dim = 0;
  double scale = 0;
};
// Rows a tile has for this head size and type.
template <class T>
int32_t attention_tile_rows(int32_t head_dim);
// Largest head size that attention() and attention_decode() take.
inline constexpr int32_t kMaxHeadDim = 256;
// out[t] = softmax(scale · q[t] Kᵀ) V per head over positions 0…position(t), tiles in any order.
template <class T>
void attention(T* out, const T* q, const KvView& kv, const AttentionArgs& args, const AttentionTile* tiles,
               int64_t n_tiles, cudaStream_t stream);
// attention_mma.cu: the same on tensor cores, operands rounded; heads of up to kMmaHeadDim.
inline constexpr int32_t kMmaHeadDim = 128;
int32_t attention_mma_tile_rows();
void attention_mma(float* out, const float* q, const KvView& kv, const AttentionArgs& args, Rounding rounding,
                   const AttentionTile* tiles, int64_t n_tiles, cudaStream_t stream);
// attention_decode.cu: one query a token, keys split into fixed pieces that are combined in order. `partial`
// holds attention_decode_scratch<T>() bytes, `counters` n_tokens · n_head_kv zeros, which it leaves zero;
// max_positions bounds position + 1 over the batch and decides nothing but the grid.
template <class T>
size_t attention_decode_scratch(int32_t n_tokens, const AttentionArgs& args, int32_t max_positions);
template <class T>
void attention_decode(T* out, const T* q, const KvView& kv, const AttentionArgs& args, const BatchView& batch,
                      int32_t max_positions, void* partial, unsigned* counters, cudaStream_t stream);

// gemv.cu
// ------------------------------------------------------------------------------------------------------ y[l,
// o] = Σ_i w[o, i] · x[l, i] for n_lanes rows of x. Up to three matrices of one type and n_in share a launch.
// With `gated` there are two of one shape and y = swiglu(w0 x, w1 x) goes to output[0].
struct GemvArgs {
  int32_t n_matrices = 0;
  WeightView w[3];
  void* y[3] = {};
  const void* x = nullptr;
  int64_t n_lanes = 0;
  bool gated = false;
};
void gemv_f32(const GemvArgs& args, cudaStream_t stream);
void gemv_f64(const GemvArgs& args, cudaStream_t stream);
void gemv_tf32(const GemvArgs& args, cudaStream_t stream);
void gemv_bf16(const GemvArgs& args, cudaStream_t stream);

}  // namespace logitgate::cuda
