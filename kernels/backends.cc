// Chooses the backend that --device and --precision ask for.
// Contract: see backends.h.
#include "kernels/backends.h"

#include <algorithm>
#include <charconv>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda_module.h"
#include "lib/error.h"

namespace logitgate {

namespace {

// The number in "cuda:N"; -1, the first usable GPU, for "cuda".
int cuda_index(const std::string& device) {
  if (device == "cuda") return -1;
  const char* const begin = device.data() + 5;
  const char* const end = device.data() + device.size();
  int index = 0;
  const auto [stop, error] = std::from_chars(begin, end, index);
  if (error != std::errc() || stop != end || index < 0)
    fail(ErrorCode::usage, "device {}: '{}' is not a GPU's number; use cuda:0, cuda:1, …", device,
         device.substr(5));
  return index;
}

bool has_usable_gpu() {
  std::string why;
  const std::vector<CudaDevice> devices = list_cuda_devices(why);
  return std::any_of(devices.begin(), devices.end(), [](const CudaDevice& device) { return device.usable; });
}

}  // namespace

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  if (options.threads < 0) fail(ErrorCode::usage, "threads: {} is less than 0; 0 takes all", options.threads);
  const std::string& device = options.device;
  if (device == "cuda" || device.starts_with("cuda:"))
    return make_cuda_backend(cuda_index(device), options.precision);
  if (device == "auto" && has_usable_gpu()) return make_cuda_backend(-1, options.precision);
  if (device == "auto" || device == "cpu") return make_cpu_backend(options.precision, options.threads);
  fail(ErrorCode::usage, "device {}: not a device; use auto, cpu, cuda or cuda:N", device);
}

}  // namespace logitgate
