// Which vector instruction sets the CPU kernels are compiled for, and which one runs.
// Contract: include before hwy/foreach_target.h. Only instruction sets with fused multiply-add are built, and every
// kernel gives the same bits on each of them: sums run as chains of one FMA per element or in 16 fixed lanes.
#pragma once

#if defined(__x86_64__)
// AVX2 takes the place of Highway's baseline; select_simd() refuses machines without it before any kernel runs.
#define HWY_BASELINE_TARGETS HWY_AVX2
#define HWY_DISABLED_TARGETS (~(HWY_AVX2 | HWY_AVX3))
#endif

#include <string>

namespace logitgate {

// Chooses the best level of this machine, or the one LOGITGATE_SIMD names ("avx2", "avx3"), for all kernels.
// Errors: Error{unsupported} for a machine without AVX2 and FMA, Error{usage} for a level it does not have.
void select_simd();

// As select_simd(), by name; "" is the best. For tests that compare levels within one process.
void select_simd(const std::string& level);

}  // namespace logitgate
