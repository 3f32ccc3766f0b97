// Open addressing with linear probing, at most seven eighths full.
// Contract: see digest_set.h.
#include "formats/digest_set.h"

#include <xxhash.h>

namespace logitgate {

bool DigestSet::place(std::vector<Entry>& slots, Entry entry) {
  const size_t mask = slots.size() - 1;
  for (size_t at = entry.low & mask;; at = (at + 1) & mask) {
    Entry& slot = slots[at];
    if (slot.low == entry.low && slot.high == entry.high) return false;
    if (slot.low != 0 || slot.high != 0) continue;
    slot = entry;
    return true;
  }
}

bool DigestSet::insert(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  const Entry entry{hash.low64, hash.high64 | 1};  // never both zero
  Part& part = parts_[hash.high64 >> 56];
  if ((part.used + 1) * 8 > part.slots.size() * 7) {
    std::vector<Entry> grown(part.slots.empty() ? 4 : part.slots.size() * 2);
    for (const Entry& old : part.slots) {
      if (old.low != 0 || old.high != 0) place(grown, old);
    }
    part.slots.swap(grown);
  }
  if (!place(part.slots, entry)) return false;
  ++part.used;
  ++size_;
  return true;
}

}  // namespace logitgate
