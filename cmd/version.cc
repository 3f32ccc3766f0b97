// Puts the version text together; see version.h.
// Contract: this file alone is compiled again when the commit changes.
#include "cmd/version.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "commit.h"  // made by cmake/commit.cmake
#include "kernels/backends.h"
#include "kernels/cuda_module.h"

namespace logitgate {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

// The GPUs that --device cuda would find; where there are none, the reason.
std::string cuda() {
  std::string why;
  const std::vector<CudaDevice> devices = list_cuda_devices(why);
  if (devices.empty()) return fmt::format("none ({})", why);
  std::string names;
  for (const CudaDevice& device : devices) {
    names += fmt::format("{}cuda:{} {} (sm_{}{})", names.empty() ? "" : ", ", device.index, device.name,
                         device.major, device.minor);
  }
  return names;
}

}  // namespace

std::string tool_name() { return "logitgate " LOGITGATE_VERSION; }

std::string version_text() {
  return fmt::format("{}\ncommit:   {}\ncompiler: {}\nCUDA:     {}\nSIMD:     {}", tool_name(),
                     LOGITGATE_COMMIT, compiler(), cuda(), simd_level());
}

}  // namespace logitgate
