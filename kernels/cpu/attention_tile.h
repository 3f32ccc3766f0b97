// What one task of attention computes: some query heads of one record against one key/value head.
// Contract: lanes are ordered by token, then by query head of the group; `scratch` is sized by tile_scratch.
#pragma once

#include <cstddef>

#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/panel.h"

namespace logitgate {

template <class T>
struct AttentionTile {
  const T* q = nullptr;     // of the piece's first token and the group's first head
  T* out = nullptr;         // likewise
  size_t token_stride = 0;  // n_head · head_dim
  const T* keys = nullptr;
  const T* values = nullptr;
  size_t head_dim = 0;
  size_t n_group = 0;         // query heads of the key/value head
  size_t first_lane = 0;      // lane l is token l / n_group of the piece, head l % n_group of the group
  size_t n_lanes = 0;         // at most kPanel
  size_t first_position = 0;  // of the piece
  T scale = 0;
  T* scratch = nullptr;

  size_t position(size_t lane) const { return first_position + (first_lane + lane) / n_group; }
  size_t offset(size_t lane) const {
    return (first_lane + lane) / n_group * token_stride + (first_lane + lane) % n_group * head_dim;
  }
};

// Elements: queries and sums [head_dim, kPanel] each, scores [kKeyBlock, kPanel], maxima, totals, positions, rescaling [kPanel] each.
template <class T>
constexpr size_t tile_scratch(size_t head_dim) {
  return (2 * head_dim + kKeyBlock + 4) * kPanel<T>;
}

}  // namespace logitgate
