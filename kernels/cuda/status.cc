// The texts of CUDA's errors, and allocation with a message that helps.
// Contract: kernels/cuda/status.h.
#include "kernels/cuda/status.h"

#include "lib/error.h"

namespace logitgate::cuda {
namespace {

std::string current_device() {
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess ? fmt::format("cuda:{}", device) : std::string("cuda");
}

void release_device(void* data, size_t) { (void)cudaFree(data); }
void release_pinned(void* data, size_t) { (void)cudaFreeHost(data); }

[[noreturn]] void out_of_memory(size_t n_bytes, const char* what) {
  size_t free = 0;
  size_t total = 0;
  (void)cudaGetLastError();
  (void)cudaMemGetInfo(&free, &total);
  fail(ErrorCode::resource,
       "{}: {}: out of GPU memory: {} wanted, {} of {} free; a smaller --batch-tokens (prefill) or --lanes "
       "(decode-prime), another GPU or --device cpu would do",
       current_device(), what, bytes_text(n_bytes), bytes_text(free), bytes_text(total));
}

}  // namespace

std::string bytes_text(size_t n_bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(n_bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit < 4; unit++) value /= 1024;
  return unit == 0 ? fmt::format("{} B", n_bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  if (status == cudaErrorMemoryAllocation) out_of_memory(0, call);
  if (status == cudaErrorNoKernelImageForDevice) {
    fail(ErrorCode::unsupported,
         "{}: this build has no code for this GPU; build with -DCMAKE_CUDA_ARCHITECTURES=native or use "
         "--device cpu",
         current_device());
  }
  fail(ErrorCode::resource,
       "{}: {}: {} ({}); the GPU's results cannot be trusted: run again, or use --device cpu",
       current_device(), call, cudaGetErrorString(status), cudaGetErrorName(status));
}

void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(ErrorCode::resource, "{}: {}: cuBLASLt says {}; use --device cpu or another --precision",
       current_device(), call, cublasLtGetStatusString(status));
}

Buffer device_allocate(size_t n_bytes, const char* what) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, n_bytes == 0 ? 1 : n_bytes);
  if (status == cudaErrorMemoryAllocation) out_of_memory(n_bytes, what);
  check(status, what);
  return Buffer(data, n_bytes, release_device);
}

Buffer pinned_allocate(size_t n_bytes, const char* what) {
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, n_bytes == 0 ? 1 : n_bytes);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    fail(ErrorCode::resource,
         "{}: {}: the host has no {} of memory to lock; raise the memory limit (ulimit -l, or the job's)",
         current_device(), what, bytes_text(n_bytes));
  }
  check(status, what);
  return Buffer(data, n_bytes, release_pinned);
}

bool DeviceArray::reserve(size_t n_bytes) {
  if (n_bytes <= buffer_.n_bytes()) return false;
  buffer_ = Buffer();  // gives the old memory back first
  buffer_ = device_allocate(n_bytes, what_);
  return true;
}

}  // namespace logitgate::cuda
