// The dimensions of a model, in llama.cpp's names.
// Contract: read from metadata and checked: every value is within a bound that keeps sizes from overflowing.
#pragma once

#include <cstdint>
#include <string>

#include "lib/model_file.h"

namespace logitgate {

struct ModelConfig {
  int32_t n_layer = 0;      // block_count
  int32_t n_ctx = 0;        // context_length: a record may not be longer
  int32_t n_vocab = 0;      // rows of token_embd.weight
  int32_t n_embd = 0;       // embedding_length
  int32_t n_ff = 0;         // feed_forward_length
  int32_t n_head = 0;       // attention.head_count
  int32_t n_head_kv = 0;    // attention.head_count_kv
  int32_t head_dim = 0;     // attention.key_length, else n_embd / n_head
  int32_t n_rot = 0;        // rope.dimension_count, else head_dim
  double rope_theta = 0;    // rope.freq_base
  double rms_norm_eps = 0;  // attention.layer_norm_rms_epsilon
};

// Reads the dimensions that transformers with grouped-query attention share. Error{corrupt} for a missing or absurd one,
// Error{unsupported} for a RoPE scaling.
ModelConfig read_model_config(const ModelFile& file);

}  // namespace logitgate
