// Small host arrays on their way to the device: page-locked copies in a ring, so that the caller's memory is
// free at once.
// Contract: upload() enqueues the copy on the stream and returns; it waits only where all of the ring is
// still in flight.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cuda/status.h"

namespace logitgate::cuda {

class Staging {
 public:
  void upload(void* to, const void* from, size_t n_bytes, cudaStream_t stream) {
    if (n_bytes == 0) return;
    Slot& slot = slots_[next_];
    next_ = (next_ + 1) % slots_.size();
    LOGITGATE_CUDA(cudaEventSynchronize(slot.done));
    if (slot.pinned.n_bytes() < n_bytes)
      slot.pinned = pinned_allocate(std::max<size_t>(2 * n_bytes, 4096), "staging");
    std::memcpy(slot.pinned.data(), from, n_bytes);
    LOGITGATE_CUDA(cudaMemcpyAsync(to, slot.pinned.data(), n_bytes, cudaMemcpyHostToDevice, stream));
    LOGITGATE_CUDA(cudaEventRecord(slot.done, stream));
  }

 private:
  struct Slot {
    Buffer pinned;
    Event done;
  };
  std::array<Slot, 16> slots_;
  size_t next_ = 0;
};

}  // namespace logitgate::cuda
