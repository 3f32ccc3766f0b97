// The Backend's ops on the GPU: checks of shapes, choice of kernel, and the scratch memory they need.
// Contract: kernels/cuda/cuda_backend.h; the kernels' own contracts are in ops.h.
#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "lib/error.h"

namespace logitgate::cuda {
namespace {

// A dequantised weight is made whole where it is not larger than this, else in tiles of rows.
constexpr size_t kScratchBytes = size_t{512} << 20;
constexpr int64_t kTileRows = 256;                   // tiles are multiples of it
constexpr size_t kReserveBytes = size_t{256} << 20;  // left to the driver and to small arrays

int64_t rows_a_tile(int64_t n_out, int64_t n_in, size_t operand_size) {
  const int64_t fit = static_cast<int64_t>(kScratchBytes / (static_cast<size_t>(n_in) * operand_size));
  return fit >= n_out ? n_out : std::max(kTileRows, fit / kTileRows * kTileRows);
}

bool is_direct(WeightType type, Precision precision) {
  return precision == Precision::bf16 ? type == WeightType::BF16
                                      : precision != Precision::f64 && type == WeightType::F32;
}

WeightView view_of(const Weight& w) { return {w.data, w.type, w.n_in, w.n_out}; }

template <class T>
T* as(Activation a) {
  return static_cast<T*>(a.data);
}

void require(bool holds, const char* op, const char* what) {
  if (!holds) fail(ErrorCode::resource, "cuda: {}: {}", op, what);
}

}  // namespace

CudaBackend::CudaBackend(const DeviceInfo& device, Precision precision)
    : device_(device), precision_(precision), gemm_(precision) {}

CudaBackend::~CudaBackend() {
  (void)cudaSetDevice(device_.index);
  (void)cudaStreamSynchronize(stream_);
  (void)cudaStreamSynchronize(copy_stream_);
}

// Memory
// -----------------------------------------------------------------------------------------------------------

size_t CudaBackend::free_memory() const {
  use_device();
  size_t free = 0;
  size_t total = 0;
  LOGITGATE_CUDA(cudaMemGetInfo(&free, &total));
  const size_t later = kReserveBytes + kScratchBytes - std::min(kScratchBytes, weight_scratch_.n_bytes()) +
                       logit_bytes_to_come();
  return free > later ? free - later : 0;
}

Buffer CudaBackend::allocate(size_t n_bytes) {
  use_device();
  return device_allocate(n_bytes, "activations");
}

Weight CudaBackend::load(const Tensor& tensor) {
  use_device();
  const WeightTypeInfo& info = weight_type_info(tensor.type);
  if (tensor.type != WeightType::F32 && tensor.type != WeightType::F16 && tensor.type != WeightType::BF16 &&
      tensor.type != WeightType::Q8_0) {
    fail(ErrorCode::unsupported,
         "{}: type {} has no CUDA kernels yet; F32, F16, BF16 and Q8_0 have (or use --device cpu)",
         tensor.name, info.name);
  }
  Weight weight{tensor.name, tensor.type, tensor.n_in(), tensor.n_out(), nullptr};
  const auto key =
      std::make_pair(static_cast<const void*>(tensor.data), fmt::format("{}x{}", weight.n_in, weight.n_out));
  const auto found = loaded_.find(key);
  if (found != loaded_.end()) {
    weight.data = found->second;
    return weight;
  }
  weights_.push_back(device_allocate(tensor.n_bytes, tensor.name.c_str()));
  weight.data = weights_.back().data();
  loaded_.emplace(key, weight.data);
  if (!uploader_) uploader_ = std::make_unique<Uploader>(stream_);
  uploader_->upload(weights_.back().data(), tensor);
  if (weight.n_out > 1) {
    const int64_t tile = is_direct(weight.type, precision_)
                             ? weight.n_out
                             : rows_a_tile(weight.n_out, weight.n_in, gemm_.operand_size());
    gemm_.pin(tile, weight.n_in);
    if (weight.n_out % tile != 0) gemm_.pin(weight.n_out % tile, weight.n_in);
  }
  return weight;
}

DeviceRope CudaBackend::load_rope(const RopeTable& table) {
  use_device();
  const size_t n = static_cast<size_t>(table.n_positions) * static_cast<size_t>(table.n_rot / 2);
  require(table.cos.size() == n && table.sin.size() == n, "load_rope",
          "the table's size does not fit its shape");
  DeviceRope rope;
  rope.n_rot = table.n_rot;
  rope.n_positions = table.n_positions;
  rope.interleaved = table.interleaved;
  rope.storage = device_allocate(2 * n * element_size(), "rotary tables");
  std::byte* const cos = static_cast<std::byte*>(rope.storage.data());
  rope.cos = cos;
  rope.sin = cos + n * element_size();
  const auto put = [&](const std::vector<double>& values, std::byte* to) {
    if (wide()) {
      LOGITGATE_CUDA(cudaMemcpyAsync(to, values.data(), n * sizeof(double), cudaMemcpyHostToDevice, stream_));
      LOGITGATE_CUDA(cudaStreamSynchronize(stream_));
      return;
    }
    const std::vector<float> narrow(values.begin(), values.end());
    LOGITGATE_CUDA(cudaMemcpyAsync(to, narrow.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream_));
    LOGITGATE_CUDA(cudaStreamSynchronize(stream_));
  };
  put(table.cos, cos);
  put(table.sin, cos + n * element_size());
  return rope;
}

std::unique_ptr<KvCache> CudaBackend::make_kv_cache(const KvShape& shape) {
  use_device();
  return std::make_unique<CudaKvCache>(shape, element_size(), device_.index);
}

// The pass
// ---------------------------------------------------------------------------------------------------------

void CudaBackend::begin(const TokenBatch& batch, KvCache& cache) {
  use_device();
  uploader_.reset();  // its buffers are of use while weights load
  auto* const ours = dynamic_cast<CudaKvCache*>(&cache);
  require(ours != nullptr, "begin", "the KV cache belongs to another backend");
  phase_ = batch.phase;
  pieces_ = batch.pieces;
  n_tokens_ = batch.n_tokens();
  cache_ = ours;
  max_position_ = 0;
  n_rope_positions_ = INT32_MAX;
  tiles_for_ = {0, 0};
  std::vector<int32_t> positions(batch.tokens.size(), -1);
  std::vector<int32_t> slots(batch.tokens.size(), 0);
  for (const BatchPiece& piece : pieces_) {
    require(piece.first_token >= 0 && piece.n_tokens > 0 && piece.first_position >= 0 &&
                piece.first_token <= n_tokens_ - piece.n_tokens,
            "begin", "a piece lies outside the batch");
    require(piece.n_tokens <= ours->capacity(piece.slot) - piece.first_position, "begin",
            "a piece does not fit its KV slot");
    for (int32_t i = 0; i < piece.n_tokens; i++) {
      positions[static_cast<size_t>(piece.first_token + i)] = piece.first_position + i;
      slots[static_cast<size_t>(piece.first_token + i)] = piece.slot;
    }
    max_position_ = std::max(max_position_, piece.first_position + piece.n_tokens - 1);
  }
  require(std::find(positions.begin(), positions.end(), -1) == positions.end(), "begin",
          "a token belongs to no piece");
  const size_t n_bytes = positions.size() * sizeof(int32_t);
  const size_t room =
      std::bit_ceil(std::max<size_t>(n_bytes, 4096));  // grows by doubling, so that it rarely moves
  for (DeviceArray* array : {&tokens_, &positions_, &slots_}) array->reserve(room);
  staging_.upload(tokens_.as<void>(), batch.tokens.data(), n_bytes, stream_);
  staging_.upload(positions_.as<void>(), positions.data(), n_bytes, stream_);
  staging_.upload(slots_.as<void>(), slots.data(), n_bytes, stream_);
  ours->sync(stream_);
  decode_bound_ =
      static_cast<int32_t>(std::bit_ceil(std::max(256u, static_cast<uint32_t>(max_position_) + 1)));
}

BatchView CudaBackend::batch() const {
  return {tokens_.as<const int32_t>(), positions_.as<const int32_t>(), slots_.as<const int32_t>(), n_tokens_};
}

void CudaBackend::need_pass(const char* op) const { require(cache_ != nullptr, op, "called before begin()"); }

void CudaBackend::need_position(const DeviceRope& rope) const {
  require(max_position_ < rope.n_positions, "rope", "a position is past the rotary tables");
}

// Ops
// --------------------------------------------------------------------------------------------------------------

void CudaBackend::embed(Activation x, const Weight& token_embd, double scale) {
  need_pass("embed");
  require(x.n_rows == n_tokens_ && x.n_cols == token_embd.n_in, "embed", "x is not [tokens, n_embd]");
  if (wide()) {
    cuda::embed(as<double>(x), view_of(token_embd), batch(), scale, stream_);
  } else {
    cuda::embed(as<float>(x), view_of(token_embd), batch(), static_cast<float>(scale), stream_);
  }
}

void CudaBackend::rms_norm(Activation y, Activation x, const Weight& w, double eps) {
  const int64_t n = x.n_rows * x.n_cols;
  require(w.n_out == 1 && w.n_in > 0 && x.n_cols % w.n_in == 0 && y.n_rows * y.n_cols == n, "rms_norm",
          "shapes do not fit");
  if (wide()) {
    cuda::rms_norm(as<double>(y), as<const double>(x), view_of(w), n / w.n_in, w.n_in, eps, stream_);
  } else {
    cuda::rms_norm(as<float>(y), as<const float>(x), view_of(w), n / w.n_in, w.n_in, static_cast<float>(eps),
                   stream_);
  }
}

void CudaBackend::add_rms_norm(Activation h, Activation x, Activation y, const Weight& w, double eps) {
  if (w.n_in != x.n_cols || h.data == x.data || h.data == y.data)
    return Backend::add_rms_norm(h, x, y, w, eps);
  require(w.n_out == 1 && h.n_rows == x.n_rows && y.n_rows == x.n_rows && h.n_cols == x.n_cols &&
              y.n_cols == x.n_cols,
          "add_rms_norm", "shapes do not fit");
  if (wide()) {
    cuda::add_rms_norm(as<double>(h), as<double>(x), as<const double>(y), view_of(w), x.n_rows, x.n_cols, eps,
                       stream_);
  } else {
    cuda::add_rms_norm(as<float>(h), as<float>(x), as<const float>(y), view_of(w), x.n_rows, x.n_cols,
                       static_cast<float>(eps), stream_);
  }
}

const void* CudaBackend::gemm_operand(Activation x) {
  const int64_t n = x.n_rows * x.n_cols;
  if (precision_ != Precision::bf16) {
    // Kernels may read 16 bytes at a time from the base on: a view that starts elsewhere moves to one that
    // does not.
    if (reinterpret_cast<uintptr_t>(x.data) % 16 == 0) return x.data;
    const size_t n_bytes = static_cast<size_t>(n) * element_size();
    operand_scratch_.reserve(n_bytes);
    LOGITGATE_CUDA(
        cudaMemcpyAsync(operand_scratch_.as<void>(), x.data, n_bytes, cudaMemcpyDeviceToDevice, stream_));
    return operand_scratch_.as<void>();
  }
  operand_scratch_.reserve(static_cast<size_t>(n) * sizeof(uint16_t));
  round_to_bf16(operand_scratch_.as<uint16_t>(), as<const float>(x), n, stream_);
  return operand_scratch_.as<void>();
}

void CudaBackend::gemm(void* y, const Weight& w, const void* x_operand, int64_t n_tokens) {
  require(reinterpret_cast<uintptr_t>(y) % 16 == 0, "matmul",
          "the result does not start at a multiple of 16 bytes");
  if (is_direct(w.type, precision_))
    return gemm_.run(y, w.n_out, w.data, w.n_out, x_operand, w.n_in, n_tokens, stream_);
  const int64_t tile = rows_a_tile(w.n_out, w.n_in, gemm_.operand_size());
  weight_scratch_.reserve(static_cast<size_t>(tile * w.n_in) * gemm_.operand_size());
  for (int64_t row = 0; row < w.n_out; row += tile) {
    const int64_t n = std::min(tile, w.n_out - row);
    if (wide()) {
      dequantize_f64(weight_scratch_.as<double>(), view_of(w), row, n, stream_);
    } else if (precision_ == Precision::bf16) {
      dequantize_bf16(weight_scratch_.as<uint16_t>(), view_of(w), row, n, stream_);
    } else {
      dequantize_f32(weight_scratch_.as<float>(), view_of(w), row, n, stream_);
    }
    std::byte* const to = static_cast<std::byte*>(y) + static_cast<size_t>(row) * element_size();
    gemm_.run(to, w.n_out, weight_scratch_.as<void>(), n, x_operand, w.n_in, n_tokens, stream_);
  }
}

void CudaBackend::gemv(const GemvArgs& args) {
  switch (precision_) {
    case Precision::f64:
      return gemv_f64(args, stream_);
    case Precision::tf32:
      return gemv_tf32(args, stream_);
    case Precision::bf16:
      return gemv_bf16(args, stream_);
    default:
      return gemv_f32(args, stream_);
  }
}

void CudaBackend::matmul_rows(void* y, const Weight& w, Activation x) {
  if (phase_ == Phase::prefill) return gemm(y, w, gemm_operand(x), x.n_rows);
  GemvArgs args;
  args.n_matrices = 1;
  args.w[0] = view_of(w);
  args.y[0] = y;
  args.x = x.data;
  args.n_lanes = x.n_rows;
  gemv(args);
}

void CudaBackend::matmul(Activation y, const Weight& w, Activation x) {
  need_pass("matmul");
  require(x.n_cols == w.n_in && y.n_cols == w.n_out && y.n_rows == x.n_rows, "matmul", "shapes do not fit");
  matmul_rows(y.data, w, x);
}

void CudaBackend::rope(Activation x, const DeviceRope& table, int32_t head_dim) {
  need_pass("rope");
  need_position(table);
  require(x.n_rows == n_tokens_ && head_dim > 0 && head_dim <= kMaxHeadDim && x.n_cols % head_dim == 0 &&
              table.n_rot <= head_dim,
          "rope", "shapes do not fit (heads of up to 256)");
  n_rope_positions_ = std::min(n_rope_positions_, table.n_positions);
  const RopeView view{table.cos, table.sin, table.n_rot, table.interleaved};
  const int32_t n_head = static_cast<int32_t>(x.n_cols / head_dim);
  if (wide()) {
    cuda::rope(as<double>(x), view, batch(), n_head, head_dim, stream_);
  } else {
    cuda::rope(as<float>(x), view, batch(), n_head, head_dim, stream_);
  }
}

void CudaBackend::store_kv(int32_t layer, Activation k, Activation v) {
  need_pass("store_kv");
  const KvShape& shape = cache_->shape();
  const int64_t n = int64_t{shape.n_head_kv} * shape.head_dim;
  require(layer >= 0 && layer < shape.n_layer && k.n_cols == n && v.n_cols == n && k.n_rows == n_tokens_ &&
              v.n_rows == n_tokens_,
          "store_kv", "shapes do not fit the cache");
  if (wide()) {
    cuda::store_kv(cache_->view(), layer, as<const double>(k), as<const double>(v), batch(), stream_);
  } else {
    cuda::store_kv(cache_->view(), layer, as<const float>(k), as<const float>(v), batch(), stream_);
  }
}

void CudaBackend::qkv(Activation q, Activation k, Activation v, Activation x, const QkvWeights& w,
                      const DeviceRope& table, const AttentionShape& shape) {
  need_pass("qkv");
  const int64_t d = shape.head_dim;
  const bool fits = d > 0 && d <= kMaxHeadDim && (!w.attn_q_norm || w.attn_q_norm.n_in == d) &&
                    (!w.attn_k_norm || w.attn_k_norm.n_in == d);
  if (!fits) return Backend::qkv(q, k, v, x, w, table, shape);
  const KvShape& kv = cache_->shape();
  require(kv.n_head_kv == shape.n_head_kv && kv.head_dim == d && shape.layer >= 0 && shape.layer < kv.n_layer,
          "qkv", "the shape is not the cache's");
  require(x.n_rows == n_tokens_ && q.n_rows == n_tokens_ && k.n_rows == n_tokens_ && v.n_rows == n_tokens_ &&
              q.n_cols == shape.n_head * d && k.n_cols == shape.n_head_kv * d && v.n_cols == k.n_cols &&
              w.attn_q.n_out == q.n_cols && w.attn_k.n_out == k.n_cols && w.attn_v.n_out == v.n_cols &&
              w.attn_q.n_in == x.n_cols && w.attn_k.n_in == x.n_cols && w.attn_v.n_in == x.n_cols &&
              table.n_rot <= d,
          "qkv", "shapes do not fit");
  need_position(table);
  n_rope_positions_ = std::min(n_rope_positions_, table.n_positions);
  if (phase_ == Phase::prefill) {
    const void* const operand = gemm_operand(x);
    gemm(q.data, w.attn_q, operand, x.n_rows);
    gemm(k.data, w.attn_k, operand, x.n_rows);
    gemm(v.data, w.attn_v, operand, x.n_rows);
  } else if (w.attn_q.type == w.attn_k.type && w.attn_q.type == w.attn_v.type) {
    GemvArgs args;
    args.n_matrices = 3;
    args.w[0] = view_of(w.attn_q);
    args.w[1] = view_of(w.attn_k);
    args.w[2] = view_of(w.attn_v);
    args.y[0] = q.data;
    args.y[1] = k.data;
    args.y[2] = v.data;
    args.x = x.data;
    args.n_lanes = x.n_rows;
    gemv(args);
  } else {
    matmul_rows(q.data, w.attn_q, x);
    matmul_rows(k.data, w.attn_k, x);
    matmul_rows(v.data, w.attn_v, x);
  }
  QkvFinish finish;
  if (w.attn_q_norm) finish.q_norm = view_of(w.attn_q_norm);
  if (w.attn_k_norm) finish.k_norm = view_of(w.attn_k_norm);
  finish.eps = w.rms_norm_eps;
  finish.rope = {table.cos, table.sin, table.n_rot, table.interleaved};
  finish.layer = shape.layer;
  finish.n_head = shape.n_head;
  if (wide()) {
    finish_qkv(as<double>(q), as<const double>(k), as<const double>(v), cache_->view(), finish, batch(),
               stream_);
  } else {
    finish_qkv(as<float>(q), as<const float>(k), as<const float>(v), cache_->view(), finish, batch(),
               stream_);
  }
}

void CudaBackend::attention(Activation out, Activation q, const AttentionShape& shape) {
  need_pass("attention");
  const KvShape& kv = cache_->shape();
  require(shape.n_head_kv == kv.n_head_kv && shape.head_dim == kv.head_dim && shape.layer >= 0 &&
              shape.layer < kv.n_layer && shape.n_head_kv > 0 && shape.n_head % shape.n_head_kv == 0 &&
              q.n_cols == int64_t{shape.n_head} * shape.head_dim && out.n_cols == q.n_cols &&
              q.n_rows == n_tokens_ && out.n_rows == n_tokens_,
          "attention", "shapes do not fit the cache");
  if (shape.head_dim > kMaxHeadDim) {
    fail(ErrorCode::unsupported,
         "cuda: attention: heads of {} elements; up to {} have kernels (or use --device cpu)", shape.head_dim,
         kMaxHeadDim);
  }
  phase_ == Phase::prefill ? attend_prefill(out, q, shape) : attend_decode(out, q, shape);
}

void CudaBackend::attend_prefill(Activation out, Activation q, const AttentionShape& shape) {
  const int32_t group = shape.n_head / shape.n_head_kv;
  const bool tensor_cores =
      (precision_ == Precision::tf32 || precision_ == Precision::bf16) && shape.head_dim <= kMmaHeadDim;
  const int32_t tile_rows = tensor_cores ? attention_mma_tile_rows()
                            : wide()     ? attention_tile_rows<double>(shape.head_dim)
                                         : attention_tile_rows<float>(shape.head_dim);
  if (tiles_for_ != std::make_pair(tile_rows, group)) {
    std::vector<AttentionTile> tiles;
    for (const BatchPiece& piece : pieces_) {
      require(piece.n_tokens <= INT32_MAX / group, "attention", "a piece is too long");
      for (int32_t row = 0; row < piece.n_tokens * group; row += tile_rows) {
        tiles.push_back({piece.first_token, piece.first_position, piece.n_tokens, piece.slot, row});
      }
    }
    // The longest work first, so that the last blocks to start are short ones.
    const auto last_key = [&](const AttentionTile& t) { return t.first_position + t.first_row / group; };
    std::stable_sort(tiles.begin(), tiles.end(),
                     [&](const auto& a, const auto& b) { return last_key(a) > last_key(b); });
    tiles_.reserve(std::bit_ceil(tiles.size() * sizeof(AttentionTile)));
    staging_.upload(tiles_.as<void>(), tiles.data(), tiles.size() * sizeof(AttentionTile), stream_);
    n_tiles_ = static_cast<int64_t>(tiles.size());
    tiles_for_ = {tile_rows, group};
  }
  const AttentionArgs args{shape.layer, shape.n_head, shape.n_head_kv, shape.head_dim, shape.scale};
  if (tensor_cores) {
    const Rounding rounding = precision_ == Precision::tf32 ? Rounding::tf32 : Rounding::bf16;
    attention_mma(as<float>(out), as<const float>(q), cache_->view(), args, rounding,
                  tiles_.as<const AttentionTile>(), n_tiles_, stream_);
  } else if (wide()) {
    cuda::attention(as<double>(out), as<const double>(q), cache_->view(), args,
                    tiles_.as<const AttentionTile>(), n_tiles_, stream_);
  } else {
    cuda::attention(as<float>(out), as<const float>(q), cache_->view(), args,
                    tiles_.as<const AttentionTile>(), n_tiles_, stream_);
  }
}

void CudaBackend::attend_decode(Activation out, Activation q, const AttentionShape& shape) {
  const AttentionArgs args{shape.layer, shape.n_head, shape.n_head_kv, shape.head_dim, shape.scale};
  const size_t scratch = wide() ? attention_decode_scratch<double>(n_tokens_, args, decode_bound_)
                                : attention_decode_scratch<float>(n_tokens_, args, decode_bound_);
  attention_partial_.reserve(scratch);
  const size_t n_counters =
      sizeof(unsigned) * static_cast<size_t>(n_tokens_) * static_cast<size_t>(shape.n_head_kv);
  if (attention_counters_.reserve(n_counters)) {
    LOGITGATE_CUDA(
        cudaMemsetAsync(attention_counters_.as<void>(), 0, attention_counters_.n_bytes(), stream_));
  }
  void* const partial = attention_partial_.as<void>();
  unsigned* const counters = attention_counters_.as<unsigned>();
  if (wide()) {
    attention_decode(as<double>(out), as<const double>(q), cache_->view(), args, batch(), decode_bound_,
                     partial, counters, stream_);
  } else {
    attention_decode(as<float>(out), as<const float>(q), cache_->view(), args, batch(), decode_bound_,
                     partial, counters, stream_);
  }
}

void CudaBackend::swiglu(Activation y, Activation gate, Activation up) {
  const int64_t n = y.n_rows * y.n_cols;
  require(gate.n_rows * gate.n_cols == n && up.n_rows * up.n_cols == n, "swiglu", "shapes do not fit");
  if (wide()) {
    cuda::swiglu(as<double>(y), as<const double>(gate), as<const double>(up), n, stream_);
  } else {
    cuda::swiglu(as<float>(y), as<const float>(gate), as<const float>(up), n, stream_);
  }
}

void CudaBackend::gated_mlp(Activation h, Activation up, Activation x, const Weight& ffn_gate,
                            const Weight& ffn_up) {
  need_pass("gated_mlp");
  require(x.n_cols == ffn_gate.n_in && x.n_cols == ffn_up.n_in && h.n_cols == ffn_gate.n_out &&
              up.n_cols == ffn_up.n_out && h.n_cols == up.n_cols && h.n_rows == x.n_rows &&
              up.n_rows == x.n_rows,
          "gated_mlp", "shapes do not fit");
  if (phase_ == Phase::prefill) {
    const void* const operand = gemm_operand(x);
    gemm(h.data, ffn_gate, operand, x.n_rows);
    gemm(up.data, ffn_up, operand, x.n_rows);
    return swiglu(h, h, up);
  }
  // The fused kernel reads 16 bytes of weights at a time, which every type with n_in % 32 == 0 allows.
  if (ffn_gate.type != ffn_up.type || x.n_cols % 32 != 0 || reinterpret_cast<uintptr_t>(x.data) % 16 != 0)
    return Backend::gated_mlp(h, up, x, ffn_gate, ffn_up);
  GemvArgs args;
  args.n_matrices = 2;
  args.w[0] = view_of(ffn_gate);
  args.w[1] = view_of(ffn_up);
  args.y[0] = h.data;
  args.x = x.data;
  args.n_lanes = x.n_rows;
  args.gated = true;
  gemv(args);
}

void CudaBackend::add(Activation x, Activation y) {
  const int64_t n = x.n_rows * x.n_cols;
  require(y.n_rows * y.n_cols == n, "add", "shapes do not fit");
  if (wide()) {
    cuda::add(as<double>(x), as<const double>(y), n, stream_);
  } else {
    cuda::add(as<float>(x), as<const float>(y), n, stream_);
  }
}

void CudaBackend::gather_rows(Activation y, Activation x, std::span<const int32_t> rows) {
  use_device();
  require(y.n_cols == x.n_cols && y.n_rows == static_cast<int64_t>(rows.size()), "gather_rows",
          "shapes do not fit");
  require(std::all_of(rows.begin(), rows.end(), [&](int32_t r) { return r >= 0 && r < x.n_rows; }),
          "gather_rows", "a row is out of range");
  rows_.reserve(std::bit_ceil(std::max<size_t>(rows.size_bytes(), 4096)));
  staging_.upload(rows_.as<void>(), rows.data(), rows.size_bytes(), stream_);
  if (wide()) {
    cuda::gather_rows(as<double>(y), as<const double>(x), rows_.as<const int32_t>(), y.n_rows, y.n_cols,
                      stream_);
  } else {
    cuda::gather_rows(as<float>(y), as<const float>(x), rows_.as<const int32_t>(), y.n_rows, y.n_cols,
                      stream_);
  }
}

std::vector<double> CudaBackend::read(Activation x) {
  use_device();
  const size_t n = static_cast<size_t>(x.n_rows * x.n_cols);
  std::vector<double> out(n);
  if (wide()) {
    LOGITGATE_CUDA(cudaMemcpyAsync(out.data(), x.data, n * sizeof(double), cudaMemcpyDeviceToHost, stream_));
    LOGITGATE_CUDA(cudaStreamSynchronize(stream_));
    return out;
  }
  std::vector<float> narrow(n);
  LOGITGATE_CUDA(cudaMemcpyAsync(narrow.data(), x.data, n * sizeof(float), cudaMemcpyDeviceToHost, stream_));
  LOGITGATE_CUDA(cudaStreamSynchronize(stream_));
  std::copy(narrow.begin(), narrow.end(), out.begin());
  return out;
}

void CudaBackend::write(Activation x, std::span<const double> values) {
  use_device();
  const size_t n = static_cast<size_t>(x.n_rows * x.n_cols);
  require(values.size() == n, "write", "shapes do not fit");
  const std::vector<float> narrow(values.begin(), values.end());
  const void* const from = wide() ? static_cast<const void*>(values.data()) : narrow.data();
  LOGITGATE_CUDA(cudaMemcpyAsync(x.data, from, n * element_size(), cudaMemcpyHostToDevice, stream_));
  LOGITGATE_CUDA(cudaStreamSynchronize(stream_));
}

}  // namespace logitgate::cuda
