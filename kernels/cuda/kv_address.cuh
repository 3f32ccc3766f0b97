// Where a position's keys and values lie in the cache.
// Contract: slot s holds [n_layer, 2 (keys, values), n_head_kv, capacity[s], head_dim] elements of T.
#pragma once

#include "kernels/cuda/ops.h"

namespace logitgate::cuda {

// The first key (value = 0) or value (value = 1) of one head: positions follow each other, head_dim elements
// apart.
template <class T>
__device__ __forceinline__ T* kv_head(const KvView& kv, int32_t slot, int32_t layer, int32_t value,
                                      int32_t head) {
  const int64_t index = (static_cast<int64_t>(layer) * 2 + value) * kv.n_head_kv + head;
  return static_cast<T*>(kv.base[slot]) + index * kv.capacity[slot] * kv.head_dim;
}

}  // namespace logitgate::cuda
