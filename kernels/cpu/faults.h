// Defects planted on purpose, so that tests can show that the gate finds them.
// Contract: compiled in only where LOGITGATE_FAULTS is defined; then LOGITGATE_FAULT=gemm or gemv in the environment makes
// that matrix product alone slightly wrong. In every other build the question is the constant false.
#pragma once

#ifdef LOGITGATE_FAULTS
#include <cstdlib>
#include <string_view>
#endif

namespace logitgate {

#ifdef LOGITGATE_FAULTS
inline bool fault_planted(std::string_view kernel) {
  const char* named = std::getenv("LOGITGATE_FAULT");
  return named != nullptr && kernel == named;
}
#else
constexpr bool fault_planted(const char*) { return false; }
#endif

}  // namespace logitgate
