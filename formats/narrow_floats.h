// float and double to bf16 and f16 and back: one rounding, to nearest, ties to even.
// Contract: infinities stay, a NaN stays a NaN with the upper bits of its payload, what is too large becomes
// infinity, what is too small becomes a denormal or zero of its sign. Widening is exact, and narrowing what
// was widened gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace logitgate {

// The float from which narrowing gives what narrowing the double directly would: rounded to odd.
float round_to_odd(double x);

void narrow_to_bf16(const float* from, size_t n, uint16_t* to);
void narrow_to_f16(const float* from, size_t n, uint16_t* to);
void widen_bf16(const uint16_t* from, size_t n, float* to);
void widen_f16(const uint16_t* from, size_t n, float* to);

}  // namespace logitgate
