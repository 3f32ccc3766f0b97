// Weights from the mapped file into GPU memory, through page-locked buffers that several threads fill.
// Contract: the bytes are on their way when load() returns, in order with the stream; types are the file's
// own, Q8_0 split into quants and scales (ops.h). The tensor's bytes are read during the call alone.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/status.h"
#include "lib/tensor.h"

namespace logitgate::cuda {

class CopyThreads;

class Uploader {
 public:
  explicit Uploader(cudaStream_t stream);
  ~Uploader();
  // Fills `to` (device memory of tensor.n_bytes) with the tensor.
  void upload(void* to, const Tensor& tensor);

 private:
  struct Slot {
    Buffer pinned;
    Buffer staging;  // device memory, for types that are laid out anew
    Event done;
  };
  Slot& next_slot();

  cudaStream_t stream_;
  std::vector<std::unique_ptr<Slot>> slots_;
  size_t next_ = 0;
  std::unique_ptr<CopyThreads> threads_;
};

}  // namespace logitgate::cuda
