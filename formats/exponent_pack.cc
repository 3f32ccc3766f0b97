// Plain loops that compilers vectorise, and a scan for the rare escapes.
// Contract: see exponent_pack.h.
#include "formats/exponent_pack.h"

#include <algorithm>
#include <array>

#include "formats/simd_clones.h"

namespace logitgate {

namespace {

constexpr unsigned kEscape = 15;
constexpr size_t kSample = 4096;
constexpr size_t kScan = 64;

inline uint8_t nibble(uint8_t top, uint8_t e) {
  const uint8_t below = static_cast<uint8_t>(top - e);
  return below < kEscape ? below : static_cast<uint8_t>(kEscape);
}

// True if one of these bytes has an escape in the nibble at `shift`.
inline bool has_escape(const uint8_t* packed, size_t n, int shift) {
  uint8_t any = 0;
  for (size_t i = 0; i < n; ++i) any |= static_cast<uint8_t>(((packed[i] >> shift) & 15) == kEscape);
  return any != 0;
}

// f(i) for every byte i whose nibble at `shift` is an escape, ascending, of the first n bytes.
template <class F>
inline void for_each_escape(const uint8_t* packed, size_t n, int shift, F f) {
  for (size_t begin = 0; begin < n; begin += kScan) {
    const size_t end = std::min(begin + kScan, n);
    if (!has_escape(packed + begin, end - begin, shift)) continue;
    for (size_t i = begin; i < end; ++i) {
      if (((packed[i] >> shift) & 15) == kEscape) f(i);
    }
  }
}

}  // namespace

uint8_t choose_top(const uint8_t* exponents, size_t n) {
  std::array<uint32_t, 256> counts{};
  const size_t step = std::max<size_t>(n / kSample, 1);
  for (size_t i = 0; i < n; i += step) ++counts[exponents[i]];
  uint32_t best = 0;
  uint8_t best_top = 0;
  for (unsigned top = 0; top < 256; ++top) {
    uint32_t covered = 0;
    for (unsigned below = 0; below < kEscape; ++below) covered += counts[(top - below) & 255];
    if (covered > best) {
      best = covered;
      best_top = static_cast<uint8_t>(top);
    }
  }
  return best_top;
}

LOGITGATE_SIMD_CLONES
size_t pack_exponents(const uint8_t* __restrict exponents, size_t n, uint8_t top,
                      uint8_t* __restrict packed) {
  const size_t half = (n + 1) / 2;
  const size_t pairs = n / 2;
  size_t escapes = 0;
  for (size_t i = 0; i < pairs; ++i) {
    const uint8_t low = nibble(top, exponents[i]);
    const uint8_t high = nibble(top, exponents[half + i]);
    packed[i] = static_cast<uint8_t>(low | high << 4);
    escapes += static_cast<size_t>(low == kEscape) + static_cast<size_t>(high == kEscape);
  }
  if (half > pairs) {
    packed[pairs] = nibble(top, exponents[pairs]);
    escapes += packed[pairs] == kEscape ? 1 : 0;
  }
  return escapes;
}

LOGITGATE_SIMD_CLONES
void unpack_exponents(const uint8_t* __restrict packed, size_t n, uint8_t top,
                      uint8_t* __restrict exponents) {
  const size_t half = (n + 1) / 2;
  for (size_t i = 0; i < half; ++i) exponents[i] = static_cast<uint8_t>(top - (packed[i] & 15));
  for (size_t i = 0; i < n - half; ++i) exponents[half + i] = static_cast<uint8_t>(top - (packed[i] >> 4));
}

LOGITGATE_SIMD_CLONES
void collect_escapes(const uint8_t* exponents, size_t n, const uint8_t* packed, uint8_t* escapes) {
  const size_t half = (n + 1) / 2;
  size_t found = 0;
  for_each_escape(packed, half, 0, [&](size_t i) { escapes[found++] = exponents[i]; });
  for_each_escape(packed, n - half, 4, [&](size_t i) { escapes[found++] = exponents[half + i]; });
}

LOGITGATE_SIMD_CLONES
bool place_escapes(const uint8_t* packed, size_t n, const uint8_t* escapes, size_t n_escapes,
                   uint8_t* exponents) {
  const size_t half = (n + 1) / 2;
  size_t found = 0;
  const auto place = [&](size_t at) {
    if (found < n_escapes) exponents[at] = escapes[found];
    ++found;
  };
  for_each_escape(packed, half, 0, place);
  for_each_escape(packed, n - half, 4, [&](size_t i) { place(half + i); });
  return found == n_escapes;
}

}  // namespace logitgate
