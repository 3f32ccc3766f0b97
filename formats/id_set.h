// A set of strings that remembers a 128-bit hash of each, to tell duplicates among any number of ids.
// Contract: at most 28 bytes a string beyond the first thousands, also while it grows: the hashes lie in many small tables
// that grow one at a time. Two strings are taken for one with odds of n² / 2^128.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace logitgate {

class IdSet {
 public:
  IdSet();
  // False where the string is there already.
  bool insert(std::string_view text);
  bool contains(std::string_view text) const;
  size_t size() const { return size_; }
  size_t n_bytes() const;  // of the tables

 private:
  struct Hash {
    uint64_t low = 0;
    uint64_t high = 0;  // both zero: a free slot
    friend bool operator==(const Hash&, const Hash&) = default;
  };
  struct Table {
    std::vector<Hash> slots;  // open addressing, at most 7/8 full
    size_t used = 0;
  };
  static Hash hash_of(std::string_view text);
  static size_t find(const std::vector<Hash>& slots, const Hash& hash);
  static void grow(Table& table);

  std::vector<Table> tables_;
  size_t size_ = 0;
};

}  // namespace logitgate
