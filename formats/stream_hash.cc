// The stream hash over the library's XXH3 state.
// Contract: see stream_hash.h.
#include "formats/stream_hash.h"

#include <xxhash.h>

#include <new>

namespace logitgate {

StreamHash::StreamHash() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  reset();
}

StreamHash::~StreamHash() { XXH3_freeState(state_); }

void StreamHash::reset() { XXH3_64bits_reset(state_); }

void StreamHash::update(const void* data, size_t n) {
  static const HashUpdate avx2 = avx2_hash_update();
  if (avx2 != nullptr) return avx2(state_, data, n);
  XXH3_64bits_update(state_, data, n);
}

uint64_t StreamHash::digest() const { return XXH3_64bits_digest(state_); }

}  // namespace logitgate
