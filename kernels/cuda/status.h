// cuBLASLt's status turned into an Error, and memory, streams and events with an owner.
// Contract: failures throw Error{resource} with one line that says what would help. Destructors never throw.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "kernels/cuda/check.h"
#include "lib/backend.h"

namespace logitgate::cuda {

void check(cublasStatus_t status, const char* call);

// n_bytes of device memory as a Buffer; an out-of-memory error says how much is free and what would help.
Buffer device_allocate(size_t n_bytes, const char* what);
// The same in page-locked host memory.
Buffer pinned_allocate(size_t n_bytes, const char* what);

// "1.2 GiB", "512 B"
std::string bytes_text(size_t n_bytes);

// A device array that grows and never shrinks; growing loses the contents and waits for the device.
class DeviceArray {
 public:
  explicit DeviceArray(const char* what) : what_(what) {}
  // At least n_bytes; true where the address changed.
  bool reserve(size_t n_bytes);
  template <class T>
  T* as() const {
    return static_cast<T*>(buffer_.data());
  }
  size_t n_bytes() const { return buffer_.n_bytes(); }
  void reset() { buffer_ = Buffer(); }

 private:
  const char* what_;
  Buffer buffer_;
};

// RAII for streams and events.
struct Stream {
  cudaStream_t handle = nullptr;
  Stream() { LOGITGATE_CUDA(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking)); }
  ~Stream() { (void)cudaStreamDestroy(handle); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return handle; }
};
struct Event {
  cudaEvent_t handle = nullptr;
  Event() { LOGITGATE_CUDA(cudaEventCreateWithFlags(&handle, cudaEventDisableTiming)); }
  ~Event() { (void)cudaEventDestroy(handle); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return handle; }
};

}  // namespace logitgate::cuda
