// Chooses the backend that --device and --precision ask for.
// Contract: see backends.h.
#include "kernels/backends.h"

#include "kernels/cpu/cpu_backend.h"
#include "lib/error.h"

namespace logitgate {

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  if (options.threads < 0) fail(ErrorCode::usage, "threads: {} is less than 0; 0 takes all", options.threads);
  const std::string& device = options.device;
  if (device == "auto" || device == "cpu") return make_cpu_backend(options.precision, options.threads);
  if (device == "cuda" || device.rfind("cuda:", 0) == 0) {
    fail(ErrorCode::unsupported, "device {}: this build has no CUDA backend; use cpu or auto", device);
  }
  fail(ErrorCode::usage, "device {}: not a device; use auto, cpu, cuda or cuda:N", device);
}

}  // namespace logitgate
