// A set of strings that remembers a 128-bit hash of each, to tell duplicates among any number of ids.
// Contract: at most 56 bytes a string, also while it grows; two strings are taken for one with odds of n² / 2^129.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace logitgate {

class IdSet {
 public:
  // False where the string is there already.
  bool insert(std::string_view text);
  size_t size() const { return size_; }

 private:
  struct Hash {
    uint64_t low = 0;
    uint64_t high = 0;  // both zero: a free slot
    friend bool operator==(const Hash&, const Hash&) = default;
  };
  static bool place(std::vector<Hash>& slots, Hash hash);
  void grow();
  std::vector<Hash> slots_;  // open addressing; a power of two, at most 7/8 full
  size_t size_ = 0;
};

}  // namespace logitgate
