// What the program finds in liblogitgate_cuda.so.
// Contract: kernels/cuda_module.h.
#include <memory>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda_module.h"
#include "lib/error.h"

#define LOGITGATE_EXPORT extern "C" __attribute__((visibility("default")))

LOGITGATE_EXPORT const char* logitgate_cuda_version() { return LOGITGATE_MODULE_VERSION; }

LOGITGATE_EXPORT void logitgate_cuda_list(std::vector<logitgate::CudaDevice>* devices, std::string* why) {
  for (const logitgate::cuda::DeviceInfo& info : logitgate::cuda::list_devices(*why)) {
    devices->push_back({info.index, info.name, info.major, info.minor, info.total_bytes, info.free_bytes,
                        info.usable, info.why_not});
  }
}

LOGITGATE_EXPORT logitgate::Backend* logitgate_cuda_make(int device, logitgate::Precision precision) {
  using namespace logitgate;
  if (precision == Precision::f32x3) {
    fail(ErrorCode::unsupported,
         "--precision f32x3: the CUDA backend does not compute it yet; f32, f64, tf32 and bf16 it does");
  }
  const cuda::DeviceInfo info = cuda::select_device(device);
  return std::make_unique<cuda::CudaBackend>(info, precision).release();
}
