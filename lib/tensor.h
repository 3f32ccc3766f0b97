// A weight tensor as the model file holds it: a view of mapped bytes with a name, a type and a shape.
// Contract: ne[0] is the innermost dimension (GGUF order), so a matrix y = W x has ne = {n_in, n_out} and lies
// in memory as n_out rows of n_in values. The bytes live as long as the model file that gave the view.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/quant/weight_type.h"

namespace logitgate {

struct Tensor {
  std::string name;
  WeightType type = WeightType::F32;
  std::array<int64_t, 4> ne = {1, 1, 1, 1};
  const std::byte* data = nullptr;
  size_t n_bytes = 0;

  int64_t n_in() const { return ne[0]; }
  int64_t n_out() const { return ne[1] * ne[2] * ne[3]; }
  int64_t n_elements() const { return n_in() * n_out(); }
  size_t row_bytes() const {
    const WeightTypeInfo& info = weight_type_info(type);
    return static_cast<size_t>(ne[0]) / info.block_size * info.block_bytes;
  }
};

}  // namespace logitgate
