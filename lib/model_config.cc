// The dimensions of a model, read from GGUF metadata.
// Contract: in model_config.h.
#include "lib/model_config.h"

#include <cmath>
#include <optional>

#include "lib/error.h"

namespace logitgate {
namespace {

int32_t to_dimension(const ModelFile& file, const char* key, uint64_t low, uint64_t high) {
  return static_cast<int32_t>(file.require_u64(key, low, high));
}

void refuse_rope_scaling(const ModelFile& file) {
  for (const std::string& key : file.architecture_keys()) {
    if (!key.starts_with("rope.scaling.")) continue;
    if (key == "rope.scaling.type" && file.get_string(key) == "none") continue;
    fail(ErrorCode::unsupported,
         "{}: metadata: {}.{}: RoPE scaling is not supported for this family; only \"none\" is", file.path(),
         file.architecture(), key);
  }
}

}  // namespace

ModelConfig read_model_config(const ModelFile& file) {
  ModelConfig c;
  c.n_layer = to_dimension(file, "block_count", 1, 10000);
  c.n_ctx = to_dimension(file, "context_length", 1, 1u << 28);
  c.n_embd = to_dimension(file, "embedding_length", 1, 1u << 20);
  c.n_ff = to_dimension(file, "feed_forward_length", 1, 1u << 22);
  c.n_head = to_dimension(file, "attention.head_count", 1, 1u << 16);
  c.n_head_kv = file.get_u64("attention.head_count_kv")
                    ? to_dimension(file, "attention.head_count_kv", 1, 1u << 16)
                    : c.n_head;
  if (c.n_head % c.n_head_kv != 0)
    fail(ErrorCode::corrupt, "{}: metadata: {} heads do not divide into {} key/value heads", file.path(),
         c.n_head, c.n_head_kv);
  if (file.get_u64("attention.key_length")) {
    c.head_dim = to_dimension(file, "attention.key_length", 1, 1u << 16);
  } else {
    if (c.n_embd % c.n_head != 0)
      fail(ErrorCode::corrupt, "{}: metadata: no attention.key_length, and {} does not divide into {} heads",
           file.path(), c.n_embd, c.n_head);
    c.head_dim = c.n_embd / c.n_head;
  }
  if (file.get_u64("attention.value_length").value_or(c.head_dim) != static_cast<uint64_t>(c.head_dim))
    fail(ErrorCode::unsupported,
         "{}: metadata: attention.value_length differs from key_length {}: not supported", file.path(),
         c.head_dim);
  c.n_rot = file.get_u64("rope.dimension_count")
                ? to_dimension(file, "rope.dimension_count", 2, static_cast<uint64_t>(c.head_dim))
                : c.head_dim;
  if (c.n_rot % 2 != 0)
    fail(ErrorCode::corrupt, "{}: metadata: {} rotary elements of a head, must be even", file.path(),
         c.n_rot);
  c.rope_theta = file.get_f64("rope.freq_base").value_or(10000.0);
  if (!(c.rope_theta > 1.0 && c.rope_theta <= 1e30))
    fail(ErrorCode::corrupt, "{}: metadata: rope.freq_base is {}, must be above 1", file.path(),
         c.rope_theta);
  c.rms_norm_eps = file.require_f64("attention.layer_norm_rms_epsilon");
  if (!(c.rms_norm_eps > 0.0 && c.rms_norm_eps < 1.0))
    fail(ErrorCode::corrupt, "{}: metadata: layer_norm_rms_epsilon is {}, must lie between 0 and 1",
         file.path(), c.rms_norm_eps);
  refuse_rope_scaling(file);

  const Tensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr)
    fail(ErrorCode::corrupt, "{}: tensors: token_embd.weight is missing", file.path());
  if (embedding->n_out() < 1 || embedding->n_out() > (1 << 24))
    fail(ErrorCode::corrupt, "{}: tensors: token_embd.weight has {} rows, must be from 1 to {}", file.path(),
         embedding->n_out(), 1 << 24);
  c.n_vocab = static_cast<int32_t>(embedding->n_out());
  return c;
}

}  // namespace logitgate
