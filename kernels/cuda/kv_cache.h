// The cache of keys and values in GPU memory: one allocation a slot, and a table of them that kernels read.
// Contract: lib/backend.h's KvCache. Released memory is kept for the next record that it fits and given back
// when memory runs out. The table's device copy is brought up to date by sync(), in order with the stream.
#pragma once

#include <vector>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/status.h"

namespace logitgate::cuda {

class CudaKvCache : public KvCache {
 public:
  CudaKvCache(const KvShape& shape, size_t element_size, int device);
  void reserve(int32_t slot, int32_t n_positions) override;
  void release(int32_t slot) override;
  size_t bytes_per_position() const override;

  // Positions that the slot holds; 0 where it holds none.
  int32_t capacity(int32_t slot) const;
  // Copies a changed table to the device; `staged` keeps the host's copy alive as long as needed.
  void sync(cudaStream_t stream);
  KvView view() const;
  const KvShape& shape() const { return shape_; }

 private:
  struct Storage {
    Buffer buffer;
    int32_t capacity = 0;
  };
  Storage take(int32_t n_positions);

  KvShape shape_;
  size_t element_size_;
  int device_;
  std::vector<Storage> slots_;
  std::vector<Storage> spare_;
  bool changed_ = true;
  DeviceArray bases_{"KV cache table"};
  DeviceArray capacities_{"KV cache table"};
};

}  // namespace logitgate::cuda
