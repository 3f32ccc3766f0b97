// A set of 128-bit digests, to notice an id that comes twice.
// Contract: at most 37 bytes an entry, also while it grows (it grows in 256 parts, one at a time).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace logitgate {

class DigestSet {
 public:
  // False if the text was in already (or another with the same XXH3-128).
  bool insert(std::string_view text);
  uint64_t size() const { return size_; }

 private:
  struct Entry {
    uint64_t low = 0;
    uint64_t high = 0;  // both zero: free
  };
  struct Part {
    std::vector<Entry> slots;
    size_t used = 0;
  };
  static bool place(std::vector<Entry>& slots, Entry entry);

  std::array<Part, 256> parts_;
  uint64_t size_ = 0;
};

}  // namespace logitgate
