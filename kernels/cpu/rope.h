// Rotary position embedding, in place.
// Equation: for pair (a, b) of a head, with cos and sin of the token's position: a' = a·cos - b·sin, b' = a·sin + b·cos
// (each one product and one FMA). Pairs are (i, i + n_rot/2), or (2i, 2i+1) where interleaved; elements from n_rot on stay.
// Layout: x [n_tokens, n_heads · head_dim]; cos, sin [n_positions, n_rot/2]. Cost: one pass over x, memory-bound.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/thread_pool.h"

namespace logitgate {

template <class T>
struct RopeShape {
  size_t n_heads = 0;
  size_t head_dim = 0;
  size_t n_rot = 0;
  bool interleaved = false;
  const T* cos = nullptr;
  const T* sin = nullptr;
};

template <class T>
void rotate(ThreadPool& pool, T* x, size_t n_tokens, const int32_t* positions, const RopeShape<T>& shape);

}  // namespace logitgate
