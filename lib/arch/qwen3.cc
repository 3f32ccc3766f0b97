// Qwen3: a pre-norm transformer with grouped-query attention, RMS norms on the heads of queries and keys, and SwiGLU.
// Contract: GGUF architecture `qwen3`; rotary pairs are half-split (NeoX); without output.weight the head is tied.
// Source: Qwen3 Technical Report (arXiv 2505.09388) and its published reference implementation.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "lib/arch/architecture.h"
#include "lib/rope_table.h"

namespace logitgate {
namespace {

struct Layer {
  Weight attn_norm, attn_output, ffn_norm, ffn_gate, ffn_up, ffn_down;
  QkvWeights qkv;
};

class Qwen3 : public Architecture {
 public:
  explicit Qwen3(WeightLoader& loader) : backend_(loader.backend()) {
    config_ = read_model_config(loader.file());
    n_q_ = int64_t{config_.n_head} * config_.head_dim;
    n_kv_ = int64_t{config_.n_head_kv} * config_.head_dim;
    load_weights(loader);
  }

  KvShape kv_shape() const override { return {config_.n_layer, config_.n_head_kv, config_.head_dim}; }

  size_t bytes_per_token() const override {
    const int64_t elements = 4 * int64_t{config_.n_embd} + 2 * n_q_ + 2 * n_kv_ + 2 * int64_t{config_.n_ff};
    return static_cast<size_t>(elements) * backend_.element_size();
  }

  void reserve(int32_t max_tokens, int32_t n_positions) override {
    if (n_positions > rope_.n_positions) {
      recordings_.clear();  // they hold addresses of what is replaced here and below
      rope_ = backend_.load_rope(make_rope_table(n_positions, config_.n_rot, config_.rope_theta, false));
    }
    if (max_tokens <= max_tokens_) return;
    recordings_.clear();
    x_ = allocate(max_tokens, config_.n_embd);
    h_ = allocate(max_tokens, config_.n_embd);
    y_ = allocate(max_tokens, config_.n_embd);
    rows_ = allocate(max_tokens, config_.n_embd);
    q_ = allocate(max_tokens, n_q_);
    attended_ = allocate(max_tokens, n_q_);
    k_ = allocate(max_tokens, n_kv_);
    v_ = allocate(max_tokens, n_kv_);
    gate_ = allocate(max_tokens, config_.n_ff);
    up_ = allocate(max_tokens, config_.n_ff);
    max_tokens_ = max_tokens;
  }

  void forward(const TokenBatch& batch, KvCache& cache, std::span<const int32_t> rows,
               LogitSink& sink) override {
    Backend& b = backend_;
    const int64_t n_tokens = batch.n_tokens();
    const double eps = config_.rms_norm_eps;
    const Activation x = view(x_, n_tokens, config_.n_embd), h = view(h_, n_tokens, config_.n_embd),
                     y = view(y_, n_tokens, config_.n_embd), q = view(q_, n_tokens, n_q_),
                     k = view(k_, n_tokens, n_kv_), v = view(v_, n_tokens, n_kv_),
                     attended = view(attended_, n_tokens, n_q_), gate = view(gate_, n_tokens, config_.n_ff),
                     up = view(up_, n_tokens, config_.n_ff);

    b.begin(batch, cache);
    b.replay(recordings_[n_tokens], [&] {
      b.embed(x, token_embd_, 1.0);
      b.rms_norm(h, x, layers_[0].attn_norm, eps);
      for (size_t l = 0; l < layers_.size(); ++l) {
        const Layer& layer = layers_[l];
        const AttentionShape shape{static_cast<int32_t>(l), config_.n_head, config_.n_head_kv,
                                   config_.head_dim, 1.0 / std::sqrt(static_cast<double>(config_.head_dim))};
        b.qkv(q, k, v, h, layer.qkv, rope_, shape);
        b.attention(attended, q, shape);
        b.matmul(y, layer.attn_output, attended);
        b.add_rms_norm(h, x, y, layer.ffn_norm, eps);
        b.gated_mlp(gate, up, h, layer.ffn_gate, layer.ffn_up);
        b.matmul(y, layer.ffn_down, gate);
        if (l + 1 < layers_.size())
          b.add_rms_norm(h, x, y, layers_[l + 1].attn_norm, eps);
        else
          b.add(x, y);
      }
    });
    if (rows.empty()) return;
    const Activation last = view(rows_, static_cast<int64_t>(rows.size()), config_.n_embd);
    b.gather_rows(last, x, rows);
    b.rms_norm(last, last, output_norm_, eps);
    b.lm_head(output_, last, sink);
  }

 private:
  void load_weights(WeightLoader& loader) {
    const int64_t n_embd = config_.n_embd, n_ff = config_.n_ff;
    token_embd_ = loader.take("token_embd.weight", n_embd, config_.n_vocab);
    for (int32_t l = 0; l < config_.n_layer; ++l) {
      const auto name = [l](const char* part) { return fmt::format("blk.{}.{}.weight", l, part); };
      Layer layer;
      layer.attn_norm = loader.take(name("attn_norm"), n_embd, 1);
      layer.qkv.attn_q = loader.take(name("attn_q"), n_embd, n_q_);
      layer.qkv.attn_k = loader.take(name("attn_k"), n_embd, n_kv_);
      layer.qkv.attn_v = loader.take(name("attn_v"), n_embd, n_kv_);
      layer.qkv.attn_q_norm = loader.take(name("attn_q_norm"), config_.head_dim, 1);
      layer.qkv.attn_k_norm = loader.take(name("attn_k_norm"), config_.head_dim, 1);
      layer.qkv.rms_norm_eps = config_.rms_norm_eps;
      layer.attn_output = loader.take(name("attn_output"), n_q_, n_embd);
      layer.ffn_norm = loader.take(name("ffn_norm"), n_embd, 1);
      layer.ffn_gate = loader.take(name("ffn_gate"), n_embd, n_ff);
      layer.ffn_up = loader.take(name("ffn_up"), n_embd, n_ff);
      layer.ffn_down = loader.take(name("ffn_down"), n_ff, n_embd);
      layers_.push_back(std::move(layer));
    }
    output_norm_ = loader.take("output_norm.weight", n_embd, 1);
    output_ = loader.take_optional("output.weight", n_embd, config_.n_vocab);
    if (!output_) output_ = token_embd_;
    loader.finish({"block_count", "context_length", "embedding_length", "feed_forward_length",
                   "attention.head_count", "attention.head_count_kv", "attention.key_length",
                   "attention.value_length", "attention.layer_norm_rms_epsilon", "rope.freq_base",
                   "rope.dimension_count", "rope.scaling.type", "vocab_size"});
  }

  Buffer allocate(int64_t n_rows, int64_t n_cols) {
    return backend_.allocate(static_cast<size_t>(n_rows * n_cols) * backend_.element_size());
  }
  static Activation view(const Buffer& buffer, int64_t n_rows, int64_t n_cols) {
    return {buffer.data(), n_rows, n_cols};
  }

  Backend& backend_;
  int64_t n_q_ = 0, n_kv_ = 0;
  Weight token_embd_, output_norm_, output_;
  std::vector<Layer> layers_;
  DeviceRope rope_;
  int32_t max_tokens_ = 0;
  Buffer x_, h_, y_, rows_, q_, attended_, k_, v_, gate_, up_;
  std::map<int64_t, std::unique_ptr<Recording>> recordings_;  // of passes, by number of tokens
};

}  // namespace

std::unique_ptr<Architecture> make_qwen3(WeightLoader& loader) { return std::make_unique<Qwen3>(loader); }

}  // namespace logitgate
