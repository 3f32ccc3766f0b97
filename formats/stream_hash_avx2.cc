// XXH3's update once more, inlined and compiled for AVX2.
// Contract: everything of this file is static but avx2_hash_update, so that no AVX2 code is linked into other files' place.
#include "formats/stream_hash.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define LOGITGATE_HASH_AVX2
#include <immintrin.h>
#pragma GCC push_options
#pragma GCC target("avx2")
#define XXH_INLINE_ALL
#define XXH_VECTOR XXH_AVX2
#include <xxhash.h>
#endif

namespace logitgate {

#ifdef LOGITGATE_HASH_AVX2

namespace {

// The inlined header gives the state another name; its layout is the library's.
void update(void* state, const void* data, size_t n) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), data, n);
}

}  // namespace

#pragma GCC pop_options

HashUpdate avx2_hash_update() { return __builtin_cpu_supports("avx2") ? update : nullptr; }

#else

HashUpdate avx2_hash_update() { return nullptr; }

#endif

}  // namespace logitgate
