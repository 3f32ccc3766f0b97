// The CPU backend: checks an op's operands, then hands them to its kernel.
// Contract: see lib/backend.h; weights are used where the model file is mapped. A shape that does not fit is
// Error{corrupt} for a weight and Error{usage} for a batch, each naming what was met.
#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu/activation.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemv.h"
#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/rope.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/thread_pool.h"
#include "lib/error.h"

namespace logitgate {
namespace {

constexpr size_t kLogitBytes = size_t{40} << 20;  // of one chunk of logits

size_t count(const Activation& x) { return static_cast<size_t>(x.n_rows) * static_cast<size_t>(x.n_cols); }

void require(bool holds, const char* op, const char* what) {
  if (!holds) fail(ErrorCode::usage, "cpu backend: {}: {}", op, what);
}

template <class T>
class CpuBackend : public Backend {
 public:
  explicit CpuBackend(int threads) : pool_(threads), scratch_(static_cast<size_t>(pool_.n_threads())) {}

  Precision precision() const override {
    return sizeof(T) == sizeof(double) ? Precision::f64 : Precision::f32;
  }
  std::string name() const override { return "cpu"; }
  std::string device() const override { return "cpu"; }
  std::vector<std::string> algorithms() const override { return {}; }
  size_t free_memory() const override { return available_memory(); }

  Buffer allocate(size_t n_bytes) override { return allocate_host(n_bytes); }
  Weight load(const Tensor& tensor) override;
  DeviceRope load_rope(const RopeTable& table) override;
  std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) override {
    return std::make_unique<CpuKvCache<T>>(shape);
  }

  void begin(const TokenBatch& batch, KvCache& cache) override;
  void embed(Activation x, const Weight& token_embd, double scale) override;
  void rms_norm(Activation y, Activation x, const Weight& w, double eps) override;
  void matmul(Activation y, const Weight& w, Activation x) override;
  void rope(Activation x, const DeviceRope& rope, int32_t head_dim) override;
  void store_kv(int32_t layer, Activation k, Activation v) override;
  void attention(Activation out, Activation q, const AttentionShape& shape) override;
  void swiglu(Activation y, Activation gate, Activation up) override;
  void add(Activation x, Activation y) override;
  void gather_rows(Activation y, Activation x, std::span<const int32_t> rows) override;
  std::vector<double> read(Activation x) override;
  void lm_head(const Weight& output, Activation x, LogitSink& sink) override;

 private:
  static T* data(const Activation& x) { return static_cast<T*>(x.data); }
  void multiply(T* y, const Weight& w, const T* x, size_t n_rows);

  ThreadPool pool_;
  std::vector<Scratch> scratch_;
  GemmScratch gemm_scratch_;
  Scratch logits_, norm_weights_, norm_floats_;
  Phase phase_ = Phase::prefill;
  std::vector<int32_t> tokens_, positions_;
  std::vector<BatchPiece> pieces_;
  CpuKvCache<T>* cache_ = nullptr;
};

template <class T>
Weight CpuBackend<T>::load(const Tensor& tensor) {
  const WeightTypeInfo& info = weight_type_info(tensor.type);
  if (!info.computes) {
    fail(ErrorCode::unsupported,
         "{}: type {} is not computed by this build; convert the model to F16 or Q8_0", tensor.name,
         info.name);
  }
  size_t n_bytes = 0;
  if (tensor.n_in() <= 0 || tensor.n_out() <= 0 || tensor.n_in() % info.block_size != 0 ||
      __builtin_mul_overflow(tensor.row_bytes(), static_cast<size_t>(tensor.n_out()), &n_bytes) ||
      n_bytes > tensor.n_bytes || tensor.data == nullptr) {
    fail(ErrorCode::corrupt, "{}: {} bytes of {} do not hold {} rows of {} weights", tensor.name,
         tensor.n_bytes, info.name, tensor.n_out(), tensor.n_in());
  }
  return {tensor.name, tensor.type, tensor.n_in(), tensor.n_out(), tensor.data};
}

template <class T>
DeviceRope CpuBackend<T>::load_rope(const RopeTable& table) {
  const size_t n = static_cast<size_t>(table.n_positions) * static_cast<size_t>(table.n_rot / 2);
  require(table.n_rot >= 0 && table.n_rot % 2 == 0 && table.cos.size() == n && table.sin.size() == n,
          "load_rope", "the tables are not [n_positions, n_rot / 2]");
  DeviceRope rope;
  rope.n_rot = table.n_rot;
  rope.n_positions = table.n_positions;
  rope.interleaved = table.interleaved;
  rope.storage = allocate_host(2 * n * sizeof(T));
  T* cos = static_cast<T*>(rope.storage.data());
  for (size_t i = 0; i < n; ++i) cos[i] = static_cast<T>(table.cos[i]);
  for (size_t i = 0; i < n; ++i) cos[n + i] = static_cast<T>(table.sin[i]);
  rope.cos = cos;
  rope.sin = cos + n;
  return rope;
}

template <class T>
void CpuBackend<T>::begin(const TokenBatch& batch, KvCache& cache) {
  cache_ = dynamic_cast<CpuKvCache<T>*>(&cache);
  require(cache_ != nullptr, "begin", "the KV cache belongs to another backend");
  phase_ = batch.phase;
  tokens_ = batch.tokens;
  pieces_ = batch.pieces;
  positions_.assign(tokens_.size(), 0);
  int64_t next = 0;
  for (const BatchPiece& p : pieces_) {
    require(p.first_token == next && p.n_tokens > 0 && p.first_position >= 0, "begin",
            "pieces do not follow each other");
    require(phase_ == Phase::prefill || p.n_tokens == 1, "begin", "a piece of a decode pass has one token");
    next += p.n_tokens;
    require(next <= batch.n_tokens(), "begin", "pieces hold more tokens than the batch");
    if (static_cast<size_t>(p.first_position) + static_cast<size_t>(p.n_tokens) > cache_->capacity(p.slot)) {
      fail(ErrorCode::usage, "cpu backend: begin: slot {} holds {} positions, {} are needed", p.slot,
           cache_->capacity(p.slot), p.first_position + int64_t{p.n_tokens});
    }
    for (int32_t i = 0; i < p.n_tokens; ++i) {
      positions_[static_cast<size_t>(p.first_token + i)] = p.first_position + i;
    }
  }
  require(next == batch.n_tokens(), "begin", "pieces hold fewer tokens than the batch");
}

template <class T>
void CpuBackend<T>::embed(Activation x, const Weight& token_embd, double scale) {
  require(x.n_rows == static_cast<int64_t>(tokens_.size()) && x.n_cols == token_embd.n_in, "embed",
          "x is not [T, n_embd]");
  for (const int32_t token : tokens_) {
    if (token < 0 || token >= token_embd.n_out) {
      fail(ErrorCode::usage, "cpu backend: embed: token {} is not in [0, {})", token, token_embd.n_out);
    }
  }
  const WeightTypeInfo& info = weight_type_info(token_embd.type);
  const size_t n = static_cast<size_t>(token_embd.n_in);
  const size_t row_bytes = n / info.block_size * info.block_bytes;
  pool_.run(tokens_.size(), [&](size_t t, size_t thread) {
    float* row = scratch_[thread].get<float>(n);
    info.dequantize_row(
        static_cast<const std::byte*>(token_embd.data) + static_cast<size_t>(tokens_[t]) * row_bytes, row, n);
    T* out = data(x) + t * n;
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<T>(scale) * static_cast<T>(row[i]);
  });
}

template <class T>
void CpuBackend<T>::rms_norm(Activation y, Activation x, const Weight& w, double eps) {
  require(
      w.n_out == 1 && w.n_in > 0 && x.n_cols % w.n_in == 0 && y.n_rows == x.n_rows && y.n_cols == x.n_cols,
      "rms_norm", "rows are not whole groups of the weight's length");
  const size_t n = static_cast<size_t>(w.n_in);
  T* weights = norm_weights_.get<T>(n);
  float* floats = norm_floats_.get<float>(n);
  weight_type_info(w.type).dequantize_row(w.data, floats, n);
  for (size_t i = 0; i < n; ++i) weights[i] = static_cast<T>(floats[i]);
  logitgate::rms_norm(pool_, data(x), weights, count(x) / n, n, eps, data(y));
}

template <class T>
void CpuBackend<T>::multiply(T* y, const Weight& w, const T* x, size_t n_rows) {
  if (phase_ == Phase::prefill) {
    gemm(pool_, gemm_scratch_, w, x, n_rows, y);
  } else {
    gemv(pool_, scratch_, w, x, n_rows, y);
  }
}

template <class T>
void CpuBackend<T>::matmul(Activation y, const Weight& w, Activation x) {
  require(x.n_cols == w.n_in && y.n_cols == w.n_out && x.n_rows == y.n_rows, "matmul",
          "the shapes do not fit");
  multiply(data(y), w, data(x), static_cast<size_t>(x.n_rows));
}

template <class T>
void CpuBackend<T>::rope(Activation x, const DeviceRope& table, int32_t head_dim) {
  require(x.n_rows == static_cast<int64_t>(positions_.size()) && head_dim > 0 && x.n_cols % head_dim == 0 &&
              table.n_rot <= head_dim,
          "rope", "x is not [T, n_head · head_dim]");
  for (const int32_t p : positions_) {
    if (p >= table.n_positions) {
      fail(ErrorCode::usage, "cpu backend: rope: position {} is past the table's {}", p, table.n_positions);
    }
  }
  RopeShape<T> shape;
  shape.head_dim = static_cast<size_t>(head_dim);
  shape.n_heads = static_cast<size_t>(x.n_cols) / shape.head_dim;
  shape.n_rot = static_cast<size_t>(table.n_rot);
  shape.interleaved = table.interleaved;
  shape.cos = static_cast<const T*>(table.cos);
  shape.sin = static_cast<const T*>(table.sin);
  rotate(pool_, data(x), positions_.size(), positions_.data(), shape);
}

template <class T>
void CpuBackend<T>::store_kv(int32_t layer, Activation k, Activation v) {
  const KvShape& shape = cache_->shape();
  const size_t n_heads = static_cast<size_t>(shape.n_head_kv);
  const size_t head_dim = static_cast<size_t>(shape.head_dim);
  const size_t n_cols = n_heads * head_dim;
  require(
      layer >= 0 && layer < shape.n_layer && count(k) == positions_.size() * n_cols && count(v) == count(k),
      "store_kv", "keys and values are not [T, n_head_kv · head_dim] of a layer of the cache");
  run_in_runs(pool_, pieces_.size() * n_heads, head_dim, [&](size_t first, size_t n) {
    for (size_t i = first; i < first + n; ++i) {
      const BatchPiece& piece = pieces_[i / n_heads];
      const size_t head = i % n_heads;
      const size_t position = static_cast<size_t>(piece.first_position) * head_dim;
      T* keys = cache_->keys(piece.slot, layer, head) + position;
      T* values = cache_->values(piece.slot, layer, head) + position;
      for (size_t t = 0; t < static_cast<size_t>(piece.n_tokens); ++t) {
        const size_t from = (static_cast<size_t>(piece.first_token) + t) * n_cols + head * head_dim;
        std::memcpy(keys + t * head_dim, data(k) + from, head_dim * sizeof(T));
        std::memcpy(values + t * head_dim, data(v) + from, head_dim * sizeof(T));
      }
    }
  });
}

template <class T>
void CpuBackend<T>::attention(Activation out, Activation q, const AttentionShape& shape) {
  const KvShape& kv = cache_->shape();
  require(shape.n_head_kv == kv.n_head_kv && shape.head_dim == kv.head_dim && shape.layer >= 0 &&
              shape.layer < kv.n_layer && shape.n_head_kv > 0 && shape.n_head % shape.n_head_kv == 0,
          "attention", "the shape is not the cache's");
  require(q.n_rows == static_cast<int64_t>(positions_.size()) &&
              q.n_cols == int64_t{shape.n_head} * shape.head_dim && count(out) == count(q),
          "attention", "q and out are not [T, n_head · head_dim]");
  AttentionArgs<T> args;
  args.cache = cache_;
  args.shape = shape;
  args.q = data(q);
  args.out = data(out);
  if (phase_ == Phase::prefill) {
    attention_prefill(pool_, scratch_, args, pieces_);
  } else {
    attention_decode(pool_, scratch_, args, pieces_);
  }
}

template <class T>
void CpuBackend<T>::swiglu(Activation y, Activation gate, Activation up) {
  require(count(y) == count(gate) && count(y) == count(up), "swiglu", "the shapes differ");
  logitgate::swiglu(pool_, data(gate), data(up), count(y), data(y));
}

template <class T>
void CpuBackend<T>::add(Activation x, Activation y) {
  require(count(x) == count(y), "add", "the shapes differ");
  add_to(pool_, data(y), count(x), data(x));
}

template <class T>
void CpuBackend<T>::gather_rows(Activation y, Activation x, std::span<const int32_t> rows) {
  require(y.n_rows == static_cast<int64_t>(rows.size()) && y.n_cols == x.n_cols, "gather_rows",
          "y is not [rows, n]");
  const size_t n = static_cast<size_t>(x.n_cols);
  for (size_t r = 0; r < rows.size(); ++r) {
    require(rows[r] >= 0 && rows[r] < x.n_rows, "gather_rows", "a row is not in x");
    std::memcpy(data(y) + r * n, data(x) + static_cast<size_t>(rows[r]) * n, n * sizeof(T));
  }
}

template <class T>
std::vector<double> CpuBackend<T>::read(Activation x) {
  return std::vector<double>(data(x), data(x) + count(x));
}

template <class T>
void CpuBackend<T>::lm_head(const Weight& output, Activation x, LogitSink& sink) {
  require(x.n_cols == output.n_in, "lm_head", "the shapes do not fit");
  const size_t n_vocab = static_cast<size_t>(output.n_out);
  const size_t n_rows = static_cast<size_t>(x.n_rows);
  size_t chunk = std::max(size_t{1}, kLogitBytes / (n_vocab * sizeof(T)));
  if (chunk > kPanel<T>) chunk -= chunk % kPanel<T>;
  for (size_t first = 0; first < n_rows; first += chunk) {
    const size_t n = std::min(chunk, n_rows - first);
    T* logits = logits_.get<T>(n * n_vocab);
    multiply(logits, output, data(x) + first * static_cast<size_t>(x.n_cols), n);
    LogitChunk out;
    out.first_row = static_cast<int64_t>(first);
    out.n_rows = static_cast<int64_t>(n);
    out.n_vocab = output.n_out;
    if constexpr (sizeof(T) == sizeof(double)) {
      out.f64 = {logits, n * n_vocab};
    } else {
      out.f32 = {logits, n * n_vocab};
    }
    sink.consume(out);
  }
}

const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::f32:
      return "f32";
    case Precision::f64:
      return "f64";
    case Precision::f32x3:
      return "f32x3";
    case Precision::tf32:
      return "tf32";
    case Precision::bf16:
      return "bf16";
  }
  return "?";
}

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(Precision precision, int threads) {
  select_simd();
  if (precision == Precision::f32) return std::make_unique<CpuBackend<float>>(threads);
  if (precision == Precision::f64) return std::make_unique<CpuBackend<double>>(threads);
  fail(ErrorCode::unsupported, "precision {}: needs a CUDA device; the CPU computes f32 and f64",
       precision_name(precision));
}

}  // namespace logitgate
