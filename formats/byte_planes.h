// Splits numbers into byte planes, most significant byte first, and merges them again.
// Contract: plane p of n numbers is n consecutive bytes at p * n; with rotate, numbers are rotated left by
// one bit before, so that the sign leaves the exponent's byte. Plain integer code, compiled for several SIMD
// levels: the bytes are the same.
#pragma once

#include <cstddef>
#include <cstdint>

namespace logitgate {

void split_planes(const uint16_t* numbers, size_t n, uint8_t* planes, bool rotate);
void split_planes(const uint32_t* numbers, size_t n, uint8_t* planes, bool rotate);
void split_planes(const uint64_t* numbers, size_t n, uint8_t* planes, bool rotate);
void merge_planes(const uint8_t* planes, size_t n, uint16_t* numbers, bool rotate);
void merge_planes(const uint8_t* planes, size_t n, uint32_t* numbers, bool rotate);
void merge_planes(const uint8_t* planes, size_t n, uint64_t* numbers, bool rotate);

}  // namespace logitgate
