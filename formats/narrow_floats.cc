// Conversions on the bits, the same on every machine.
// Contract: see narrow_floats.h.
#include "formats/narrow_floats.h"

#include <bit>
#include <cmath>

#include "formats/simd_clones.h"

namespace logitgate {

namespace {

inline uint16_t bf16_bits(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1)) >> 16;
  const uint32_t payload = u >> 16;
  const uint32_t nan = (payload & 0x7Fu) == 0 ? payload | 0x40u : payload;
  const bool is_nan = (u & 0x7FFFFFFFu) > 0x7F800000u;
  return static_cast<uint16_t>(is_nan ? nan : rounded);
}

inline uint16_t f16_bits(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7FFFFFFFu;
  // Normal: rebias the exponent by 127 - 15, round off 13 bits; what reaches 2^16 after rounding carries into
  // infinity.
  const uint32_t normal = (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1)) >> 13;
  // Below 2^-14: adding 0.5 aligns the significand to units of 2^-24 and rounds, as the addition itself does.
  const uint32_t denormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  const uint32_t payload = (magnitude >> 13) & 0x3FFu;
  const uint32_t nan = 0x7C00u | (payload == 0 ? 0x200u : payload);
  uint32_t result = magnitude < (113u << 23) ? denormal : normal;
  result = magnitude >= (143u << 23) ? 0x7C00u : result;
  result = magnitude > 0x7F800000u ? nan : result;
  return static_cast<uint16_t>(sign | result);
}

inline float f16_value(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1Fu;
  const uint32_t significand = h & 0x3FFu;
  const uint32_t normal = (exponent + 112u) << 23 | significand << 13;
  const uint32_t special = 0x7F800000u | significand << 13;
  const uint32_t denormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(significand)) * 0x1p-24f);
  uint32_t result = exponent == 0 ? denormal : normal;
  result = exponent == 31 ? special : result;
  return std::bit_cast<float>(sign | result);
}

}  // namespace

float round_to_odd(double x) {
  const float rounded = static_cast<float>(x);
  if (std::isnan(x) || static_cast<double>(rounded) == x) return rounded;
  uint32_t u = std::bit_cast<uint32_t>(rounded);
  if (std::fabs(static_cast<double>(rounded)) > std::fabs(x)) --u;
  return std::bit_cast<float>(u | 1u);
}

LOGITGATE_SIMD_CLONES
void narrow_to_bf16(const float* from, size_t n, uint16_t* to) {
  for (size_t i = 0; i < n; ++i) to[i] = bf16_bits(from[i]);
}

LOGITGATE_SIMD_CLONES
void narrow_to_f16(const float* from, size_t n, uint16_t* to) {
  for (size_t i = 0; i < n; ++i) to[i] = f16_bits(from[i]);
}

LOGITGATE_SIMD_CLONES
void widen_bf16(const uint16_t* from, size_t n, float* to) {
  for (size_t i = 0; i < n; ++i) to[i] = std::bit_cast<float>(static_cast<uint32_t>(from[i]) << 16);
}

LOGITGATE_SIMD_CLONES
void widen_f16(const uint16_t* from, size_t n, float* to) {
  for (size_t i = 0; i < n; ++i) to[i] = f16_value(from[i]);
}

}  // namespace logitgate
