// Random operands for kernel tests, equal from run to run.
// Contract: values depend on the seed alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "formats/quant/weight_type.h"
#include "lib/tensor.h"

namespace logitgate::testing {

class RandomValues {
 public:
  explicit RandomValues(uint64_t seed) : engine_(seed) {}
  double normal() { return normal_(engine_); }
  uint32_t bits() { return static_cast<uint32_t>(engine_()); }

  template <class T>
  std::vector<T> normals(size_t n, double scale = 1) {
    std::vector<T> x(n);
    for (T& v : x) v = static_cast<T>(scale * normal());
    return x;
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<double> normal_;
};

// A half whose magnitude lies in [2^-5, 2^3), or now and then a subnormal one.
inline uint16_t random_half(RandomValues& random) {
  const uint32_t bits = random.bits();
  const uint32_t exponent = bits % 64 == 0 ? 0 : 10 + (bits >> 8) % 8;
  return static_cast<uint16_t>((bits & 0x8000) | exponent << 10 | ((bits >> 16) & 0x3ff));
}

inline uint16_t random_bfloat16(RandomValues& random) {
  const float value = static_cast<float>(random.normal());
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

// A weight tensor of random blocks, owning its bytes.
struct RandomTensor {
  Tensor tensor;
  std::vector<std::byte> bytes;
};

inline void fill_bytes(WeightType type, std::vector<std::byte>& bytes, RandomValues& random) {
  const size_t n = bytes.size();
  for (size_t i = 0; i < n;) {
    if (type == WeightType::F32) {
      const float v = static_cast<float>(random.normal());
      std::memcpy(&bytes[i], &v, 4);
      i += 4;
    } else if (type == WeightType::Q8_0) {
      const uint16_t d = static_cast<uint16_t>(random_half(random) & 0x7fff);
      std::memcpy(&bytes[i], &d, 2);
      for (size_t j = 2; j < 34; ++j) bytes[i + j] = static_cast<std::byte>(random.bits());
      i += 34;
    } else {
      const uint16_t v = type == WeightType::F16 ? random_half(random) : random_bfloat16(random);
      std::memcpy(&bytes[i], &v, 2);
      i += 2;
    }
  }
}

inline RandomTensor random_tensor(WeightType type, int64_t n_in, int64_t n_out, uint64_t seed) {
  RandomTensor r;
  r.tensor.name.push_back('w');
  r.tensor.type = type;
  r.tensor.ne = {n_in, n_out, 1, 1};
  r.bytes.resize(r.tensor.row_bytes() * static_cast<size_t>(n_out));
  RandomValues random(seed);
  fill_bytes(type, r.bytes, random);
  r.tensor.data = r.bytes.data();
  r.tensor.n_bytes = r.bytes.size();
  return r;
}

}  // namespace logitgate::testing
