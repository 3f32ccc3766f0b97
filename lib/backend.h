// The operations of a forward pass, as one interface that a device implements.
// Contract: activations are token-major, x is [T, n] with token t at offset t·n, in double for Precision::f64 and
// in float otherwise. An op's result for one token depends on that token's record alone, never on what else is
// in the batch, on T, or on the number of threads: equal inputs give equal bits. Matrix products run as GEMM
// in Phase::prefill (also for T = 1) and as GEMV in Phase::decode (also for T > 1). Fused ops have a base-class body
// written in the primitive ones; an override must keep their meaning and is tested against the body.
// Errors: Error{resource} where memory or the device fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/tensor.h"
#include "lib/token_batch.h"

namespace logitgate {

enum class Precision { f32, f64, f32x3, tf32, bf16 };

// Device memory of n_bytes, freed by `release`; moved, never copied.
class Buffer {
 public:
  Buffer() = default;
  Buffer(void* data, size_t n_bytes, void (*release)(void*, size_t))
      : data_(data), n_bytes_(n_bytes), release_(release) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) release_(data_, n_bytes_);
  }
  void* data() const { return data_; }
  size_t n_bytes() const { return n_bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(n_bytes_, other.n_bytes_);
    std::swap(release_, other.release_);
  }
  void* data_ = nullptr;
  size_t n_bytes_ = 0;
  void (*release_)(void*, size_t) = nullptr;
};

// A view of activations: [n_rows, n_cols] contiguous elements of the run's precision on the backend's device.
struct Activation {
  void* data = nullptr;
  int64_t n_rows = 0;
  int64_t n_cols = 0;

  // The first `rows` rows of this view, and the same elements seen with another row length.
  Activation head(int64_t rows) const { return {data, rows, n_cols}; }
};

// A weight made resident by Backend::load: a matrix of n_out rows of n_in weights (a vector has n_out = 1), in the
// file's own type. `data` is the backend's: the mapped file itself on the CPU. An absent weight has data = nullptr.
struct Weight {
  std::string name;
  WeightType type = WeightType::F32;
  int64_t n_in = 0;
  int64_t n_out = 0;
  const void* data = nullptr;

  explicit operator bool() const { return data != nullptr; }
};

// Rotary tables made on the host in double: entry (p, i) holds cos and sin of position p, pair i,
// at index p·n_rot/2 + i. Shared by every backend, so that no device computes its own angles.
struct RopeTable {
  int32_t n_rot = 0;  // elements of a head that rotate; pairs = n_rot / 2
  int32_t n_positions = 0;
  bool interleaved = false;  // pairs (2i, 2i+1) instead of (i, i + n_rot/2)
  std::vector<double> cos;   // [n_positions, n_rot / 2]
  std::vector<double> sin;
};

// A RopeTable made resident by Backend::load_rope.
struct DeviceRope {
  int32_t n_rot = 0;
  int32_t n_positions = 0;
  bool interleaved = false;
  const void* cos = nullptr;  // [n_positions, n_rot / 2] in the run's precision
  const void* sin = nullptr;
  Buffer storage;
};

// Keys and values of every layer for the records in flight. Slots are independent of each other.
// A slot holds n_layer × capacity rows of n_head_kv · head_dim keys, and as many values.
struct KvShape {
  int32_t n_layer = 0;
  int32_t n_head_kv = 0;
  int32_t head_dim = 0;
};
class KvCache {
 public:
  virtual ~KvCache() = default;
  // Makes slot (from 0) hold at least n_positions positions; what it held before is lost.
  virtual void reserve(int32_t slot, int32_t n_positions) = 0;
  // Gives the slot's memory back for others.
  virtual void release(int32_t slot) = 0;
  // Bytes that one position takes over all layers.
  virtual size_t bytes_per_position() const = 0;
};

struct AttentionShape {
  int32_t layer = 0;
  int32_t n_head = 0;
  int32_t n_head_kv = 0;  // query head h reads key/value head h / (n_head / n_head_kv)
  int32_t head_dim = 0;
  double scale = 0;  // of the scores, 1/sqrt(head_dim) in most families
};

// Projection of the queries, keys and values of one layer, their optional per-head norms and rotation.
struct QkvWeights {
  Weight attn_q, attn_k, attn_v;    // [n_embd, n_head(_kv)·head_dim]
  Weight attn_q_norm, attn_k_norm;  // [head_dim], absent where the family has none
  double rms_norm_eps = 0;
};

// Logits of some rows, in order: row r of the chunk is row first_row + r of the pass.
struct LogitChunk {
  int64_t first_row = 0;
  int64_t n_rows = 0;
  int64_t n_vocab = 0;
  std::span<const float> f32;   // [n_rows, n_vocab]; empty where the run is f64
  std::span<const double> f64;  // [n_rows, n_vocab]; empty otherwise
};
class LogitSink {
 public:
  virtual ~LogitSink() = default;
  // The chunk's memory is valid during the call only. Called from one thread, in order.
  virtual void consume(const LogitChunk& chunk) = 0;
};

// What a backend keeps of a pass that it recorded; see Backend::replay.
class Recording {
 public:
  virtual ~Recording() = default;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual Precision precision() const = 0;
  virtual std::string name() const = 0;    // "cpu", "cuda"
  virtual std::string device() const = 0;  // what decides the bits: "cpu" for every CPU, a GPU's name
  // The matrix-product algorithms pinned so far, for the dump's provenance; empty where there is no choice.
  virtual std::vector<std::string> algorithms() const = 0;
  // Bytes that activations and KV cache may take, for choosing --batch-tokens and --lanes.
  virtual size_t free_memory() const = 0;
  // Tokens of a prefill pass and lanes of a decode pass beyond which this device gains little.
  virtual int32_t preferred_batch_tokens() const { return 512; }
  virtual int32_t preferred_lanes() const { return 8; }
  size_t element_size() const { return precision() == Precision::f64 ? sizeof(double) : sizeof(float); }

  // Memory. Contents of a fresh allocation are undefined.
  virtual Buffer allocate(size_t n_bytes) = 0;
  virtual Weight load(const Tensor& tensor) = 0;
  virtual DeviceRope load_rope(const RopeTable& table) = 0;
  virtual std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) = 0;

  // Opens a pass: every op until the next begin() belongs to this batch and reads and writes this cache.
  virtual void begin(const TokenBatch& batch, KvCache& cache) = 0;
  // Runs `ops`: calls of this backend's ops that depend on nothing on the host but the batch's shape (so neither
  // gather_rows nor lm_head nor read), between begin() and its next call. A backend may record them (a CUDA graph of a
  // decode pass) and replay the record at the next call with the same `recording`, empty at first, of which the caller
  // keeps one for each number of tokens, as long as the weights and activations that the ops use stay where they are.
  // The bits are those of ops().
  virtual void replay(std::unique_ptr<Recording>& recording, const std::function<void()>& ops) {
    static_cast<void>(recording);
    ops();
  }

  // Primitive ops.
  // x[t] = scale · token_embd[tokens[t]]
  virtual void embed(Activation x, const Weight& token_embd, double scale) = 0;
  // y[t] = x[t] / sqrt(mean(x[t]²) + eps) · w, over groups of w.n_in elements (a head, or the whole row); y may be x
  virtual void rms_norm(Activation y, Activation x, const Weight& w, double eps) = 0;
  // y[t, o] = Σ_i w[o, i] · x[t, i]; y must not overlap x
  virtual void matmul(Activation y, const Weight& w, Activation x) = 0;
  // Rotates the first n_rot elements of every head of x [T, n_head·head_dim] to the tokens' positions, in place.
  virtual void rope(Activation x, const DeviceRope& rope, int32_t head_dim) = 0;
  // Writes the batch's keys and values [T, n_head_kv·head_dim] of `layer` to their positions in the cache.
  virtual void store_kv(int32_t layer, Activation k, Activation v) = 0;
  // out[t] = softmax(scale · q[t] Kᵀ) V per head, over positions 0…position(t) of the token's record
  virtual void attention(Activation out, Activation q, const AttentionShape& shape) = 0;
  // y = silu(gate) · up, element by element; y may be gate
  virtual void swiglu(Activation y, Activation gate, Activation up) = 0;
  // x += y
  virtual void add(Activation x, Activation y) = 0;
  // y[r] = x[rows[r]]
  virtual void gather_rows(Activation y, Activation x, std::span<const int32_t> rows) = 0;
  // Copies activations to the host, as double; for tests and traces.
  virtual std::vector<double> read(Activation x) = 0;
  // Fills activations from the host, rounded to the run's precision; for tests and traces. The body is that of memory
  // the host can write.
  virtual void write(Activation x, std::span<const double> values);

  // Fused ops: the bodies here define them.
  // x += y; h = rms_norm(x, w, eps)
  virtual void add_rms_norm(Activation h, Activation x, Activation y, const Weight& w, double eps);
  // q = rope(norm(Wq x)); k, v likewise into the cache; k and v are scratch of [T, n_head_kv·head_dim]
  virtual void qkv(Activation q, Activation k, Activation v, Activation x, const QkvWeights& w,
                   const DeviceRope& rope, const AttentionShape& shape);
  // h = swiglu(Wgate x, Wup x); up is scratch of h's shape
  virtual void gated_mlp(Activation h, Activation up, Activation x, const Weight& ffn_gate,
                         const Weight& ffn_up);
  // The logits x Wᵀ of every row of x, chunk by chunk into the sink, so that [rows, n_vocab] never exists whole.
  virtual void lm_head(const Weight& output, Activation x, LogitSink& sink) = 0;
};

}  // namespace logitgate
