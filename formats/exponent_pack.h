// Packs a plane of exponents into half its bytes: most of a row's exponents lie within 15 of one another.
// Contract: exponent e becomes the nibble top - e (mod 256) where that is below 15, and 15 with e in the list of escapes
// otherwise. Element i is the low nibble of byte i for i < (n + 1) / 2, and the high nibble of byte i - (n + 1) / 2 after that.
// Integer code: the bytes do not depend on the SIMD level.
#pragma once

#include <cstddef>
#include <cstdint>

namespace logitgate {

// The top for which the fewest escapes are expected, from a fixed sample of the plane.
uint8_t choose_top(const uint8_t* exponents, size_t n);
// Fills (n + 1) / 2 bytes; returns the number of escapes.
size_t pack_exponents(const uint8_t* exponents, size_t n, uint8_t top, uint8_t* packed);
void collect_escapes(const uint8_t* exponents, size_t n, const uint8_t* packed, uint8_t* escapes);
void unpack_exponents(const uint8_t* packed, size_t n, uint8_t top, uint8_t* exponents);
// Puts the escapes in their places; false if there are not exactly n_escapes of them.
bool place_escapes(const uint8_t* packed, size_t n, const uint8_t* escapes, size_t n_escapes,
                   uint8_t* exponents);

}  // namespace logitgate
