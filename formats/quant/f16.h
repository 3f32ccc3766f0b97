// F16: weights stored as IEEE half, little-endian.
// Contract: a block is one weight; its value is the half's, exactly.
#pragma once

#include <cstdint>

#include "formats/quant/host_device.h"

namespace logitgate {

struct BlockF16 {
  static constexpr int n_weights = 1;
  uint16_t w;
};

// Weight i of the block, i in [0, n_weights).
LOGITGATE_HOST_DEVICE inline float weight_at(const BlockF16& block, int /*i*/) {
  return float_from_f16(block.w);
}

}  // namespace logitgate
