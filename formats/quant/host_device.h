// What the weight types' decoders need to compile for the host and for CUDA devices alike.
// Contract: no CUDA header is needed; a plain C++ compiler sees plain inline functions.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define LOGITGATE_HOST_DEVICE __host__ __device__
#else
#define LOGITGATE_HOST_DEVICE
#endif

namespace logitgate {

// The float with these bits.
LOGITGATE_HOST_DEVICE inline float float_from_bits(uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

// The value of an IEEE half, exactly; a signalling NaN becomes quiet and keeps its payload.
LOGITGATE_HOST_DEVICE inline float float_from_f16(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t fraction = magnitude & 0x3ffu;
  if (magnitude >= 0x7c00u) {
    return float_from_bits(sign | 0x7f800000u | (fraction << 13) | (fraction != 0 ? 0x400000u : 0u));
  }
  if (magnitude < 0x400u) {  // zero or subnormal: fraction · 2^-24, exact in float
    const float value = static_cast<float>(static_cast<int32_t>(fraction)) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  return float_from_bits(sign |
                         ((magnitude << 13) + (112u << 23)));  // 112: the difference of the exponents' biases
}

// The value of a bfloat16, exactly, NaN payloads included.
LOGITGATE_HOST_DEVICE inline float float_from_bf16(uint16_t bits) {
  return float_from_bits(static_cast<uint32_t>(bits) << 16);
}

}  // namespace logitgate
