// Keys and values of the records in flight, in host memory.
// Contract: a slot is one allocation [n_layer, {keys, values}, n_head_kv, capacity, head_dim]; capacity is the reserved
// positions rounded up to whole key blocks, so that kernels may read (and discard) to the end of a block. Releasing a
// slot returns its pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/memory.h"
#include "lib/backend.h"

namespace logitgate {

constexpr size_t kKeyBlock = 96;  // keys of one step of the prefill attention, from position 0 on

template <class T>
class CpuKvCache : public KvCache {
 public:
  explicit CpuKvCache(const KvShape& shape) : shape_(shape) {}

  void reserve(int32_t slot, int32_t n_positions) override;
  void release(int32_t slot) override;
  size_t bytes_per_position() const override;

  const KvShape& shape() const { return shape_; }
  // Positions that the slot holds; 0 where it is not reserved.
  size_t capacity(int32_t slot) const;
  // [capacity, head_dim] of one head
  T* keys(int32_t slot, int32_t layer, size_t head) const { return block(slot, layer, 0, head); }
  T* values(int32_t slot, int32_t layer, size_t head) const { return block(slot, layer, 1, head); }

 private:
  struct Slot {
    Buffer storage;
    size_t capacity = 0;
  };
  T* block(int32_t slot, int32_t layer, size_t which, size_t head) const;

  KvShape shape_;
  std::vector<Slot> slots_;
};

}  // namespace logitgate
