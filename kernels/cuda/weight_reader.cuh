// Reads weights of each resident type: `kChunk` neighbouring weights of one row with one 16-byte load.
// Contract: decode_four() gives weights [4·four, 4·four + 4) of a chunk, `four` known at compile time: the
// file's exact dequantised values. Raw holds the bytes in flight, so that several loads can be outstanding
// before the first is decoded. SCALAR readers take one weight at a time and have no alignment needs.
#pragma once

#include "kernels/cuda/math.cuh"

namespace logitgate::cuda {

__device__ __forceinline__ float f16_to_f32(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
__device__ __forceinline__ float bf16_to_f32(uint16_t bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

// A signed byte as a float, in two full-rate instructions: 2^23 + (q + 128) is built from bits, then 2^23 +
// 128 taken off.
__device__ __forceinline__ float byte_to_f32(unsigned word_biased, int index) {
  const unsigned bits =
      __byte_perm(word_biased, 0x4B000000u, static_cast<unsigned>(0x7650 + index) & 0xFFFFu);
  return __uint_as_float(bits) - 8388736.0f;
}

// 16 bytes that are read once: they pass the first-level cache by.
__device__ __forceinline__ uint4 load_once(const void* p) {
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(p));
  return v;
}

template <WeightType Q, bool SCALAR>
struct WeightReader;

template <>
struct WeightReader<WeightType::F32, false> {
  static constexpr int kChunk = 4;
  struct Raw {
    uint4 v;
  };
  static __device__ __forceinline__ Raw load(const WeightView& w, int64_t row, int64_t i) {
    return {load_once(static_cast<const float*>(w.data) + row * w.n_in + i)};
  }
  static __device__ __forceinline__ void decode_four(float (&out)[4], const Raw& raw, int) {
    out[0] = __uint_as_float(raw.v.x);
    out[1] = __uint_as_float(raw.v.y);
    out[2] = __uint_as_float(raw.v.z);
    out[3] = __uint_as_float(raw.v.w);
  }
};

template <WeightType Q>
struct HalfReader {
  static constexpr int kChunk = 8;
  struct Raw {
    uint4 v;
  };
  static __device__ __forceinline__ Raw load(const WeightView& w, int64_t row, int64_t i) {
    return {load_once(static_cast<const uint16_t*>(w.data) + row * w.n_in + i)};
  }
  static __device__ __forceinline__ void decode_four(float (&out)[4], const Raw& raw, int four) {
    const unsigned words[4] = {raw.v.x, raw.v.y, raw.v.z, raw.v.w};
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const uint16_t low = static_cast<uint16_t>(words[2 * four + j] & 0xffffu);
      const uint16_t high = static_cast<uint16_t>(words[2 * four + j] >> 16);
      out[2 * j] = Q == WeightType::F16 ? f16_to_f32(low) : bf16_to_f32(low);
      out[2 * j + 1] = Q == WeightType::F16 ? f16_to_f32(high) : bf16_to_f32(high);
    }
  }
};
template <>
struct WeightReader<WeightType::F16, false> : HalfReader<WeightType::F16> {};
template <>
struct WeightReader<WeightType::BF16, false> : HalfReader<WeightType::BF16> {};

template <>
struct WeightReader<WeightType::Q8_0, false> {
  static constexpr int kChunk = 16;
  struct Raw {
    uint4 v;
    uint16_t scale;
  };
  static __device__ __forceinline__ Raw load(const WeightView& w, int64_t row, int64_t i) {
    const int64_t at = row * w.n_in + i;
    const uint16_t* scales =
        reinterpret_cast<const uint16_t*>(static_cast<const int8_t*>(w.data) + w.n_in * w.n_out);
    return {load_once(static_cast<const int8_t*>(w.data) + at), __ldg(scales + at / 32)};
  }
  static __device__ __forceinline__ void decode_four(float (&out)[4], const Raw& raw, int four) {
    const float d = f16_to_f32(raw.scale);
    const unsigned words[4] = {raw.v.x, raw.v.y, raw.v.z, raw.v.w};
    const unsigned biased = words[four] ^ 0x80808080u;
#pragma unroll
    for (int j = 0; j < 4; j++) out[j] = mul_rn(d, byte_to_f32(biased, j));
  }
};

template <WeightType Q>
struct WeightReader<Q, true> {
  static constexpr int kChunk = 1;
  struct Raw {
    float v;
  };
  static __device__ __forceinline__ Raw load(const WeightView& w, int64_t row, int64_t i) {
    const int64_t at = row * w.n_in + i;
    if constexpr (Q == WeightType::F32) return {static_cast<const float*>(w.data)[at]};
    if constexpr (Q == WeightType::F16) return {f16_to_f32(static_cast<const uint16_t*>(w.data)[at])};
    if constexpr (Q == WeightType::BF16) return {bf16_to_f32(static_cast<const uint16_t*>(w.data)[at])};
    if constexpr (Q == WeightType::Q8_0) {
      const int8_t* quants = static_cast<const int8_t*>(w.data);
      const uint16_t* scales = reinterpret_cast<const uint16_t*>(quants + w.n_in * w.n_out);
      return {mul_rn(f16_to_f32(scales[at / 32]), static_cast<float>(quants[at]))};
    }
  }
};

// All weights of a chunk.
template <class Reader>
__device__ __forceinline__ void decode_chunk(float (&out)[Reader::kChunk], const typename Reader::Raw& raw) {
  if constexpr (Reader::kChunk == 1) {
    out[0] = raw.v;
  } else {
#pragma unroll
    for (int four = 0; four < Reader::kChunk / 4; four++) {
      float w[4];
      Reader::decode_four(w, raw, four);
#pragma unroll
      for (int j = 0; j < 4; j++) out[4 * four + j] = w[j];
    }
  }
}

// One weight of a run-time type, for vectors (norms) and gathers.
__device__ __forceinline__ float read_weight(const WeightView& w, int64_t row, int64_t i) {
  switch (w.type) {
    case WeightType::F32:
      return WeightReader<WeightType::F32, true>::load(w, row, i).v;
    case WeightType::F16:
      return WeightReader<WeightType::F16, true>::load(w, row, i).v;
    case WeightType::BF16:
      return WeightReader<WeightType::BF16, true>::load(w, row, i).v;
    default:
      return WeightReader<WeightType::Q8_0, true>::load(w, row, i).v;
  }
}

// Host: true where rows of this weight can be read in 16-byte chunks.
inline bool rows_are_aligned(const WeightView& w) {
  switch (w.type) {
    case WeightType::F32:
      return w.n_in % 4 == 0;
    case WeightType::F16:
    case WeightType::BF16:
      return w.n_in % 8 == 0;
    default:
      return w.n_in % 32 == 0;
  }
}

}  // namespace logitgate::cuda
