// Chooses the vector instruction set at run time.
// Contract: see simd.h; the choice is process-wide and takes effect with the next kernel call.
#include "kernels/cpu/simd.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <cstdint>
#include <cstdlib>

#include "kernels/backends.h"
#include "lib/error.h"

namespace logitgate {
namespace {

constexpr int64_t kBuilt = HWY_TARGETS;

// The best level among the bits of `targets`: Highway numbers better levels lower.
constexpr int64_t best_of(int64_t targets) { return targets & -targets; }

int64_t levels_of_machine() {
  const int64_t levels = hwy::SupportedTargets() & kBuilt;
#if defined(__x86_64__)
  // Highway's library takes its own baseline for granted, so ask the processor itself.
  const bool usable = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  const bool usable = levels != 0;
#endif
  if (!usable || levels == 0) {
    fail(ErrorCode::unsupported,
         "device cpu: this processor has no AVX2 with FMA, which the CPU kernels need; use a newer machine");
  }
  return levels;
}

int64_t level_named(const std::string& name, int64_t available) {
  if (name.empty()) return best_of(available);
  for (int64_t rest = available; rest != 0; rest &= rest - 1) {
    std::string known = hwy::TargetName(best_of(rest));
    for (char& c : known) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    if (name == known) return best_of(rest);
  }
  fail(ErrorCode::usage,
       "LOGITGATE_SIMD: '{}' is no SIMD level of this build and machine; use avx2 or leave it unset", name);
}

int64_t active = 0;

}  // namespace

void select_simd(const std::string& level) {
  active = level_named(level, levels_of_machine());
  hwy::GetChosenTarget().Update(active);
}

void select_simd() {
  const char* named = std::getenv("LOGITGATE_SIMD");
  select_simd(named == nullptr ? std::string() : std::string(named));
}

std::string simd_level() {
  if (active == 0) select_simd();
  return hwy::TargetName(active);
}

}  // namespace logitgate
