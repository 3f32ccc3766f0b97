// The weight types of model files: ggml's numbering, block sizes, and the dequantisation of a row.
// Contract: generated from types.def; a type that is known but not computed has a name and a size, so that
// an error can name it. Dequantised values are bit-equal to ggml's to_float.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace logitgate {

enum class WeightType : uint32_t {
#define LOGITGATE_WEIGHT_TYPE(name, ggml_id, block_size, block_bytes, header) name = ggml_id,
#define LOGITGATE_KNOWN_TYPE(name, ggml_id, block_size, block_bytes) name = ggml_id,
#include "formats/quant/types.def"
#undef LOGITGATE_WEIGHT_TYPE
#undef LOGITGATE_KNOWN_TYPE
};

struct WeightTypeInfo {
  WeightType type;
  std::string_view name;  // as llama.cpp prints it: "F32", "Q8_0"
  uint32_t block_size;    // weights in one block
  uint32_t block_bytes;   // bytes of one block
  bool computes;          // false: known by name and size alone
  // Dequantises n weights (a multiple of block_size) to exact f32 values; null where !computes.
  void (*dequantize_row)(const void* blocks, float* out, size_t n);
};

// The type of a ggml type id; nullptr where ggml itself has none (then the file is corrupt or too new).
const WeightTypeInfo* find_weight_type(uint32_t ggml_id);
const WeightTypeInfo& weight_type_info(WeightType type);

}  // namespace logitgate
