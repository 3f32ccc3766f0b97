// Implements id_set.h with XXH3-128 and linear probing.
// Contract: as there.
#include "formats/id_set.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace logitgate {
namespace {

constexpr size_t kTables = 256;

}  // namespace

IdSet::IdSet() : tables_(kTables) {}

IdSet::Hash IdSet::hash_of(std::string_view text) {
  const XXH128_hash_t digest = XXH3_128bits(text.data(), text.size());
  return {digest.low64 | 1, digest.high64};  // never a free slot
}

// Where the hash is, or the free slot where it belongs.
size_t IdSet::find(const std::vector<Hash>& slots, const Hash& hash) {
  size_t at = static_cast<size_t>(hash.low >> 8) % slots.size();
  while (slots[at] != Hash{} && slots[at] != hash) at = at + 1 == slots.size() ? 0 : at + 1;
  return at;
}

void IdSet::grow(Table& table) {
  std::vector<Hash> larger(std::max<size_t>(8, table.slots.size() + table.slots.size() / 2));
  for (const Hash& hash : table.slots) {
    if (hash != Hash{}) larger[find(larger, hash)] = hash;
  }
  table.slots = std::move(larger);
}

bool IdSet::insert(std::string_view text) {
  const Hash hash = hash_of(text);
  Table& table = tables_[hash.high % kTables];
  if (!table.slots.empty() && table.slots[find(table.slots, hash)] == hash) return false;
  if ((table.used + 1) * 8 > table.slots.size() * 7) grow(table);
  table.slots[find(table.slots, hash)] = hash;
  ++table.used;
  ++size_;
  return true;
}

bool IdSet::contains(std::string_view text) const {
  const Hash hash = hash_of(text);
  const Table& table = tables_[hash.high % kTables];
  return !table.slots.empty() && table.slots[find(table.slots, hash)] == hash;
}

size_t IdSet::n_bytes() const {
  size_t n = tables_.capacity() * sizeof(Table);
  for (const Table& table : tables_) n += table.slots.capacity() * sizeof(Hash);
  return n;
}

}  // namespace logitgate
