// The tokens of one forward pass: pieces of several records packed one after another, without padding.
// Contract: piece p covers tokens [p.first_token, p.first_token + p.n_tokens) of the batch, which are the
// positions p.first_position… of one record, whose keys and values live in KV slot p.slot. A record's positions
// start at 0 and arrive in order. In decode every piece has one token.
#pragma once

#include <cstdint>
#include <vector>

namespace logitgate {

// Which numeric configuration a pass runs in: GEMM over the T tokens of the batch, or GEMV token by token.
enum class Phase { prefill, decode };

struct BatchPiece {
  int32_t slot = 0;
  int32_t first_token = 0;
  int32_t n_tokens = 0;
  int32_t first_position = 0;
};

struct TokenBatch {
  Phase phase = Phase::prefill;
  std::vector<int32_t> tokens;  // [T] token ids
  std::vector<BatchPiece> pieces;

  int32_t n_tokens() const { return static_cast<int32_t>(tokens.size()); }
};

}  // namespace logitgate
