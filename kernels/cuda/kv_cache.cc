// Slots of the KV cache: taken from spare memory where it fits, allocated otherwise.
// Contract: kernels/cuda/kv_cache.h.
#include "kernels/cuda/kv_cache.h"

#include <algorithm>

#include "lib/error.h"

namespace logitgate::cuda {
namespace {

constexpr int32_t kCapacityStep = 128;
constexpr size_t kTableSlots = 64;  // the table starts with room for that many, so that it rarely moves

}  // namespace

CudaKvCache::CudaKvCache(const KvShape& shape, size_t element_size, int device)
    : shape_(shape), element_size_(element_size), device_(device) {}

size_t CudaKvCache::bytes_per_position() const {
  return size_t{2} * static_cast<size_t>(shape_.n_layer) * static_cast<size_t>(shape_.n_head_kv) *
         static_cast<size_t>(shape_.head_dim) * element_size_;
}

CudaKvCache::Storage CudaKvCache::take(int32_t n_positions) {
  const auto fits = [&](const Storage& s) { return s.capacity >= n_positions; };
  auto best = spare_.end();
  for (auto it = spare_.begin(); it != spare_.end(); ++it) {
    if (fits(*it) && (best == spare_.end() || it->capacity < best->capacity)) best = it;
  }
  if (best != spare_.end()) {
    Storage storage = std::move(*best);
    spare_.erase(best);
    return storage;
  }
  const int32_t capacity = (std::max(n_positions, 1) + kCapacityStep - 1) / kCapacityStep * kCapacityStep;
  const size_t n_bytes = static_cast<size_t>(capacity) * bytes_per_position();
  LOGITGATE_CUDA(cudaSetDevice(device_));
  size_t free = 0;
  size_t total = 0;
  LOGITGATE_CUDA(cudaMemGetInfo(&free, &total));
  // What is spare is too small for this record: one goes for each that is allocated, all of it where memory
  // is short.
  if (!spare_.empty()) {
    const auto less = [](const Storage& a, const Storage& b) { return a.capacity < b.capacity; };
    spare_.erase(std::max_element(spare_.begin(), spare_.end(), less));
  }
  if (free < n_bytes + (size_t{64} << 20)) spare_.clear();
  return {device_allocate(n_bytes, "KV cache"), capacity};
}

void CudaKvCache::reserve(int32_t slot, int32_t n_positions) {
  const size_t index = static_cast<size_t>(slot);
  if (index >= slots_.size()) slots_.resize(index + 1);
  if (slots_[index].capacity >= n_positions) return;
  release(slot);
  slots_[index] = take(n_positions);
  changed_ = true;
}

void CudaKvCache::release(int32_t slot) {
  const size_t index = static_cast<size_t>(slot);
  if (index >= slots_.size() || slots_[index].capacity == 0) return;
  spare_.push_back(std::move(slots_[index]));
  slots_[index] = Storage();
  changed_ = true;
}

int32_t CudaKvCache::capacity(int32_t slot) const {
  const size_t index = static_cast<size_t>(slot);
  return slot < 0 || index >= slots_.size() ? 0 : slots_[index].capacity;
}

void CudaKvCache::sync(cudaStream_t stream) {
  if (!changed_) return;
  std::vector<void*> bases;
  std::vector<int32_t> capacities;
  for (const Storage& slot : slots_) {
    bases.push_back(slot.buffer.data());
    capacities.push_back(slot.capacity);
  }
  const size_t room = std::max(kTableSlots, slots_.size());
  if (bases_.n_bytes() < room * sizeof(void*)) {
    bases_.reserve(2 * room * sizeof(void*));
    capacities_.reserve(2 * room * sizeof(int32_t));
  }
  // From pageable memory: the copy is staged before the call returns, so the vectors may go.
  LOGITGATE_CUDA(cudaMemcpyAsync(bases_.as<void>(), bases.data(), bases.size() * sizeof(void*),
                                 cudaMemcpyHostToDevice, stream));
  LOGITGATE_CUDA(cudaMemcpyAsync(capacities_.as<void>(), capacities.data(),
                                 capacities.size() * sizeof(int32_t), cudaMemcpyHostToDevice, stream));
  LOGITGATE_CUDA(cudaStreamSynchronize(stream));
  changed_ = false;
}

KvView CudaKvCache::view() const {
  return {bases_.as<void* const>(), capacities_.as<const int32_t>(), shape_.n_head_kv, shape_.head_dim};
}

}  // namespace logitgate::cuda
