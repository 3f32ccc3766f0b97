// Slots of the KV cache.
// Contract: see kv_cache.h.
#include "kernels/cpu/kv_cache.h"

#include <algorithm>

#include "lib/error.h"

namespace logitgate {

template <class T>
size_t CpuKvCache<T>::bytes_per_position() const {
  return static_cast<size_t>(shape_.n_layer) * 2 * static_cast<size_t>(shape_.n_head_kv) *
         static_cast<size_t>(shape_.head_dim) * sizeof(T);
}

template <class T>
void CpuKvCache<T>::reserve(int32_t slot, int32_t n_positions) {
  if (slot < 0 || n_positions < 0)
    fail(ErrorCode::usage, "kv cache: slot {}: {} positions cannot be reserved", slot, n_positions);
  const size_t index = static_cast<size_t>(slot);
  if (index >= slots_.size()) slots_.resize(index + 1);
  const size_t blocks = std::max(size_t{1}, (static_cast<size_t>(n_positions) + kKeyBlock - 1) / kKeyBlock);
  const size_t capacity = blocks * kKeyBlock;
  Slot& s = slots_[index];
  if (s.capacity == capacity) return;
  s = Slot();
  size_t n_bytes = 0;
  if (__builtin_mul_overflow(capacity, bytes_per_position(), &n_bytes)) {
    fail(ErrorCode::resource, "kv cache: {} positions are more than memory can address", n_positions);
  }
  s.storage = allocate_host(n_bytes, Pages::small);
  s.capacity = capacity;
}

template <class T>
void CpuKvCache<T>::release(int32_t slot) {
  if (slot >= 0 && static_cast<size_t>(slot) < slots_.size()) slots_[static_cast<size_t>(slot)] = Slot();
}

template <class T>
size_t CpuKvCache<T>::capacity(int32_t slot) const {
  return slot >= 0 && static_cast<size_t>(slot) < slots_.size() ? slots_[static_cast<size_t>(slot)].capacity
                                                                : 0;
}

template <class T>
T* CpuKvCache<T>::block(int32_t slot, int32_t layer, size_t which, size_t head) const {
  const Slot& s = slots_[static_cast<size_t>(slot)];
  const size_t n_heads = static_cast<size_t>(shape_.n_head_kv);
  const size_t index = (static_cast<size_t>(layer) * 2 + which) * n_heads + head;
  return static_cast<T*>(s.storage.data()) + index * s.capacity * static_cast<size_t>(shape_.head_dim);
}

template class CpuKvCache<float>;
template class CpuKvCache<double>;

}  // namespace logitgate
