// The table of weight types, generated from types.def.
// Contract: one entry a line of types.def; the block struct of a type that computes must have the size listed
// there.
#include "formats/quant/weight_type.h"

#include <array>

#include "formats/quant/all.h"
#include "lib/error.h"

namespace logitgate {
namespace {

template <class Block>
void dequantize_blocks(const void* blocks, float* out, size_t n) {
  const Block* block = static_cast<const Block*>(blocks);
  constexpr size_t block_size = Block::n_weights;
  for (size_t b = 0; b < n / block_size; ++b) {
    for (size_t i = 0; i < block_size; ++i)
      out[b * block_size + i] = weight_at(block[b], static_cast<int>(i));
  }
}

constexpr WeightTypeInfo kTypes[] = {
#define LOGITGATE_WEIGHT_TYPE(name, ggml_id, block_size, block_bytes, header) \
  {WeightType::name, #name, block_size, block_bytes, true, dequantize_blocks<Block##name>},
#define LOGITGATE_KNOWN_TYPE(name, ggml_id, block_size, block_bytes) \
  {WeightType::name, #name, block_size, block_bytes, false, nullptr},
#include "formats/quant/types.def"
#undef LOGITGATE_WEIGHT_TYPE
#undef LOGITGATE_KNOWN_TYPE
};

#define LOGITGATE_WEIGHT_TYPE(name, ggml_id, block_size, block_bytes, header) \
  static_assert(sizeof(Block##name) == (block_bytes) && Block##name::n_weights == (block_size));
#define LOGITGATE_KNOWN_TYPE(name, ggml_id, block_size, block_bytes)
#include "formats/quant/types.def"
#undef LOGITGATE_WEIGHT_TYPE
#undef LOGITGATE_KNOWN_TYPE

constexpr uint32_t kIds = 64;  // ids at or above it are none of ours

constexpr std::array<const WeightTypeInfo*, kIds> by_id() {
  std::array<const WeightTypeInfo*, kIds> table{};
  for (const WeightTypeInfo& info : kTypes) table.at(static_cast<uint32_t>(info.type)) = &info;
  return table;
}
constexpr std::array<const WeightTypeInfo*, kIds> kById = by_id();

}  // namespace

const WeightTypeInfo* find_weight_type(uint32_t ggml_id) { return ggml_id < kIds ? kById[ggml_id] : nullptr; }

const WeightTypeInfo& weight_type_info(WeightType type) {
  const WeightTypeInfo* info = find_weight_type(static_cast<uint32_t>(type));
  if (info == nullptr) {
    fail(ErrorCode::unsupported, "weight type {}: not a type that GGUF has", static_cast<uint32_t>(type));
  }
  return *info;
}

}  // namespace logitgate
