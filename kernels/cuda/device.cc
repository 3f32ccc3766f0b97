// Lists and selects GPUs, with the reasons why one cannot be used.
// Contract: kernels/cuda/device.h.
#include "kernels/cuda/device.h"

#include <cuda_runtime.h>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/status.h"
#include "lib/error.h"

namespace logitgate::cuda {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string why_no_devices(cudaError_t status) {
  int driver = 0;
  int runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  if (driver == 0) {
    return "no NVIDIA driver is loaded (libcuda.so.1); install the GPU's driver or use --device cpu";
  }
  if (status == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000) {
    return fmt::format(
        "the NVIDIA driver supports CUDA {}, this build needs {}; update the driver or use --device cpu",
        version_text(driver), version_text(runtime));
  }
  if (status == cudaErrorNoDevice || status == cudaSuccess) {
    return "the NVIDIA driver sees no GPU (is CUDA_VISIBLE_DEVICES set?); use --device cpu";
  }
  return fmt::format("the NVIDIA driver reports: {}; use --device cpu", cudaGetErrorString(status));
}

DeviceInfo describe(int index) {
  DeviceInfo info;
  info.index = index;
  cudaDeviceProp prop{};
  if (const cudaError_t status = cudaGetDeviceProperties(&prop, index); status != cudaSuccess) {
    (void)cudaGetLastError();
    info.why_not = cudaGetErrorString(status);
    return info;
  }
  info.name = prop.name;
  info.major = prop.major;
  info.minor = prop.minor;
  info.total_bytes = prop.totalGlobalMem;
  info.n_multiprocessors = prop.multiProcessorCount;
  if (prop.major < 8) {
    info.why_not =
        fmt::format("its compute capability is {}.{}, 8.0 or newer is needed", prop.major, prop.minor);
    return info;
  }
  cudaError_t status = cudaSetDevice(index);
  if (status == cudaSuccess)
    status = cudaFree(nullptr);  // makes the context, or fails where the GPU is taken or lost
  if (status == cudaSuccess) status = probe_kernel_image();
  size_t total = 0;
  if (status == cudaSuccess) status = cudaMemGetInfo(&info.free_bytes, &total);
  if (status != cudaSuccess) {
    (void)cudaGetLastError();
    info.why_not =
        status == cudaErrorNoKernelImageForDevice
            ? std::string("this build has no code for it (-DCMAKE_CUDA_ARCHITECTURES=native builds some)")
            : std::string(cudaGetErrorString(status));
    return info;
  }
  info.usable = true;
  return info;
}

}  // namespace

std::vector<DeviceInfo> list_devices(std::string& why) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    why = why_no_devices(status);
    return {};
  }
  std::vector<DeviceInfo> devices;
  for (int i = 0; i < count; i++) devices.push_back(describe(i));
  return devices;
}

DeviceInfo select_device(int index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    fail(ErrorCode::unsupported, "--device cuda: {}", why_no_devices(status));
  }
  if (index >= count) {
    fail(ErrorCode::unsupported, "--device cuda:{}: there {} cuda:0{} only", index, count == 1 ? "is" : "are",
         count == 1 ? std::string() : fmt::format(" to cuda:{}", count - 1));
  }
  std::string reasons;
  for (int i = index < 0 ? 0 : index; i < (index < 0 ? count : index + 1); i++) {
    DeviceInfo info = describe(i);
    if (info.usable) {
      LOGITGATE_CUDA(cudaSetDevice(i));
      return info;
    }
    reasons += fmt::format("{}cuda:{}{} cannot be used: {}", reasons.empty() ? "" : "; ", i,
                           info.name.empty() ? std::string() : fmt::format(" ({})", info.name), info.why_not);
  }
  fail(ErrorCode::unsupported, "--device cuda: {}; use --device cpu", reasons);
}

}  // namespace logitgate::cuda
