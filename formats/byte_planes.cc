// Byte planes as plain loops that compilers vectorise.
// Contract: see byte_planes.h.
#include "formats/byte_planes.h"

#include "formats/simd_clones.h"

namespace logitgate {

namespace {

template <class T>
inline T rotated_left(T x, int bit) {
  return bit == 0 ? x : static_cast<T>(static_cast<T>(x << 1) | static_cast<T>(x >> (sizeof(T) * 8 - 1)));
}
template <class T>
inline T rotated_right(T x, int bit) {
  return bit == 0 ? x : static_cast<T>(static_cast<T>(x >> 1) | static_cast<T>(x << (sizeof(T) * 8 - 1)));
}

template <int kBit>
inline void split16(const uint16_t* __restrict x, size_t n, uint8_t* __restrict p0, uint8_t* __restrict p1) {
  for (size_t i = 0; i < n; ++i) {
    const uint16_t u = rotated_left(x[i], kBit);
    p0[i] = static_cast<uint8_t>(u >> 8);
    p1[i] = static_cast<uint8_t>(u);
  }
}
template <int kBit>
inline void merge16(uint16_t* __restrict x, size_t n, const uint8_t* __restrict p0,
                    const uint8_t* __restrict p1) {
  for (size_t i = 0; i < n; ++i) x[i] = rotated_right(static_cast<uint16_t>(p0[i] << 8 | p1[i]), kBit);
}

template <int kBit>
inline void split32(const uint32_t* __restrict x, size_t n, uint8_t* __restrict p0, uint8_t* __restrict p1,
                    uint8_t* __restrict p2, uint8_t* __restrict p3) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t u = rotated_left(x[i], kBit);
    p0[i] = static_cast<uint8_t>(u >> 24);
    p1[i] = static_cast<uint8_t>(u >> 16);
    p2[i] = static_cast<uint8_t>(u >> 8);
    p3[i] = static_cast<uint8_t>(u);
  }
}
template <int kBit>
inline void merge32(uint32_t* __restrict x, size_t n, const uint8_t* __restrict p0,
                    const uint8_t* __restrict p1, const uint8_t* __restrict p2,
                    const uint8_t* __restrict p3) {
  for (size_t i = 0; i < n; ++i) {
    const uint32_t u = static_cast<uint32_t>(p0[i]) << 24 | static_cast<uint32_t>(p1[i]) << 16 |
                       static_cast<uint32_t>(p2[i]) << 8 | static_cast<uint32_t>(p3[i]);
    x[i] = rotated_right(u, kBit);
  }
}

template <int kBit>
inline void split64(const uint64_t* __restrict x, size_t n, uint8_t* __restrict first,
                    uint8_t* __restrict rest) {
  for (size_t p = 0; p < 8; ++p) {
    uint8_t* __restrict plane = p == 0 ? first : rest + (p - 1) * n;
    for (size_t i = 0; i < n; ++i) plane[i] = static_cast<uint8_t>(rotated_left(x[i], kBit) >> (56 - 8 * p));
  }
}
template <int kBit>
inline void merge64(uint64_t* __restrict x, size_t n, const uint8_t* __restrict first,
                    const uint8_t* __restrict rest) {
  for (size_t i = 0; i < n; ++i) {
    uint64_t u = first[i];
    for (size_t p = 0; p < 7; ++p) u = u << 8 | rest[p * n + i];
    x[i] = rotated_right(u, kBit);
  }
}

}  // namespace

LOGITGATE_SIMD_CLONES
void split_planes(const uint16_t* numbers, size_t n, uint8_t* first, uint8_t* rest, bool rotate) {
  if (rotate) return split16<1>(numbers, n, first, rest);
  split16<0>(numbers, n, first, rest);
}

LOGITGATE_SIMD_CLONES
void split_planes(const uint32_t* numbers, size_t n, uint8_t* first, uint8_t* rest, bool rotate) {
  if (rotate) return split32<1>(numbers, n, first, rest, rest + n, rest + 2 * n);
  split32<0>(numbers, n, first, rest, rest + n, rest + 2 * n);
}

LOGITGATE_SIMD_CLONES
void split_planes(const uint64_t* numbers, size_t n, uint8_t* first, uint8_t* rest, bool rotate) {
  if (rotate) return split64<1>(numbers, n, first, rest);
  split64<0>(numbers, n, first, rest);
}

LOGITGATE_SIMD_CLONES
void merge_planes(const uint8_t* first, const uint8_t* rest, size_t n, uint16_t* numbers, bool rotate) {
  if (rotate) return merge16<1>(numbers, n, first, rest);
  merge16<0>(numbers, n, first, rest);
}

LOGITGATE_SIMD_CLONES
void merge_planes(const uint8_t* first, const uint8_t* rest, size_t n, uint32_t* numbers, bool rotate) {
  if (rotate) return merge32<1>(numbers, n, first, rest, rest + n, rest + 2 * n);
  merge32<0>(numbers, n, first, rest, rest + n, rest + 2 * n);
}

LOGITGATE_SIMD_CLONES
void merge_planes(const uint8_t* first, const uint8_t* rest, size_t n, uint64_t* numbers, bool rotate) {
  if (rotate) return merge64<1>(numbers, n, first, rest);
  merge64<0>(numbers, n, first, rest);
}

LOGITGATE_SIMD_CLONES
void split_planes(const uint16_t* numbers, size_t n, uint8_t* const planes[2], bool rotate) {
  if (rotate) return split16<1>(numbers, n, planes[0], planes[1]);
  split16<0>(numbers, n, planes[0], planes[1]);
}

LOGITGATE_SIMD_CLONES
void split_planes(const uint32_t* numbers, size_t n, uint8_t* const planes[4], bool rotate) {
  if (rotate) return split32<1>(numbers, n, planes[0], planes[1], planes[2], planes[3]);
  split32<0>(numbers, n, planes[0], planes[1], planes[2], planes[3]);
}

}  // namespace logitgate
