// LOGITGATE_SIMD_CLONES before a function compiles it for AVX-512, AVX2 and the baseline, chosen when the
// program starts. Contract: for code whose results do not depend on the level (integers; floating point
// without contraction).
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define LOGITGATE_SIMD_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define LOGITGATE_SIMD_CLONES
#endif
