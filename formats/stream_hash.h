// XXH3-64 of a stream, with AVX2 where the machine has it: the digest does not depend on that.
// Contract: reset, any number of updates, digest; the distribution's library is built for the baseline alone.
#pragma once

#include <cstddef>
#include <cstdint>

struct XXH3_state_s;

namespace logitgate {

class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(const StreamHash&) = delete;
  StreamHash& operator=(const StreamHash&) = delete;
  void reset();
  void update(const void* data, size_t n);
  uint64_t digest() const;

 private:
  XXH3_state_s* state_;
};

// For StreamHash: the same update compiled for AVX2, or null where it was not or the machine has none.
using HashUpdate = void (*)(void* state, const void* data, size_t n);
HashUpdate avx2_hash_update();

}  // namespace logitgate
