// BF16: weights stored as the upper half of an IEEE single, little-endian.
// Contract: a block is one weight; its value is the bfloat16's, exactly.
#pragma once

#include <cstdint>

#include "formats/quant/host_device.h"

namespace logitgate {

struct BlockBF16 {
  static constexpr int n_weights = 1;
  uint16_t w;
};

// Weight i of the block, i in [0, n_weights).
LOGITGATE_HOST_DEVICE inline float weight_at(const BlockBF16& block, int /*i*/) {
  return float_from_bf16(block.w);
}

}  // namespace logitgate
