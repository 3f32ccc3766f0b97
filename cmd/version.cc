// Puts the version text together; see version.h.
// Contract: this file alone is compiled again when the commit changes.
#include "cmd/version.h"

#include <fmt/format.h>

#include "commit.h"  // made by cmake/commit.cmake
#include "kernels/backends.h"

namespace logitgate {
namespace {

std::string compiler() {
#if defined(__clang__)
  return fmt::format("Clang {}.{}.{}", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
  return fmt::format("GCC {}.{}.{}", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace

std::string tool_name() { return "logitgate " LOGITGATE_VERSION; }

std::string version_text() {
  return fmt::format("{}\ncommit:   {}\ncompiler: {}\nCUDA:     none\nSIMD:     {}", tool_name(),
                     LOGITGATE_COMMIT, compiler(), simd_level());
}

}  // namespace logitgate
