// Splits numbers into byte planes, most significant byte first, and merges them again.
// Contract: the first plane of n numbers is n bytes at `first`, the others are n bytes each at `rest`; with rotate, numbers are rotated left by
// one bit before, so that the sign leaves the exponent's byte. Plain integer code, compiled for several SIMD
// levels: the bytes are the same.
#pragma once

#include <cstddef>
#include <cstdint>

namespace logitgate {

void split_planes(const uint16_t* numbers, size_t n, uint8_t* first, uint8_t* rest, bool rotate);
void split_planes(const uint32_t* numbers, size_t n, uint8_t* first, uint8_t* rest, bool rotate);
void split_planes(const uint64_t* numbers, size_t n, uint8_t* first, uint8_t* rest, bool rotate);
void merge_planes(const uint8_t* first, const uint8_t* rest, size_t n, uint16_t* numbers, bool rotate);
void merge_planes(const uint8_t* first, const uint8_t* rest, size_t n, uint32_t* numbers, bool rotate);
void merge_planes(const uint8_t* first, const uint8_t* rest, size_t n, uint64_t* numbers, bool rotate);

// Planes of 32-bit or 16-bit numbers that lie apart: planes[p] for plane p.
void split_planes(const uint16_t* numbers, size_t n, uint8_t* const planes[2], bool rotate);
void split_planes(const uint32_t* numbers, size_t n, uint8_t* const planes[4], bool rotate);

}  // namespace logitgate
