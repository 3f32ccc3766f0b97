// Implements id_set.h with XXH3-128 and linear probing.
// Contract: as there.
#include "formats/id_set.h"

#include <xxhash.h>

#include <algorithm>

namespace logitgate {

bool IdSet::place(std::vector<Hash>& slots, Hash hash) {
  const size_t mask = slots.size() - 1;
  for (size_t i = hash.low & mask;; i = (i + 1) & mask) {
    if (slots[i] == hash) return false;
    if (slots[i] == Hash{}) {
      slots[i] = hash;
      return true;
    }
  }
}

void IdSet::grow() {
  std::vector<Hash> larger(std::max<size_t>(2 * slots_.size(), 64));
  for (const Hash& hash : slots_) {
    if (hash != Hash{}) place(larger, hash);
  }
  slots_.swap(larger);
}

bool IdSet::insert(std::string_view text) {
  if ((size_ + 1) * 8 > slots_.size() * 7) grow();
  const XXH128_hash_t digest = XXH3_128bits(text.data(), text.size());
  Hash hash{digest.low64, digest.high64};
  if (hash == Hash{}) hash.low = 1;
  if (!place(slots_, hash)) return false;
  ++size_;
  return true;
}

}  // namespace logitgate
