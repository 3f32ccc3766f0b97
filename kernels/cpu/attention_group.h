// What one task of the decode attention computes: one token, the query heads of one key/value head.
// Contract: weights is scratch of [n_group, weight_stride], weight_stride the keys rounded up to a multiple of 16.
#pragma once

#include <cstddef>

namespace logitgate {

template <class T>
struct AttentionGroup {
  const T* q = nullptr;  // [n_group, head_dim]
  T* out = nullptr;      // [n_group, head_dim]
  const T* keys = nullptr;
  const T* values = nullptr;
  size_t head_dim = 0;
  size_t n_group = 0;
  size_t n_keys = 0;
  T scale = 0;
  T* weights = nullptr;
  size_t weight_stride = 0;
  T* totals = nullptr;  // [n_group]
};

}  // namespace logitgate
