// F32: weights stored as IEEE single, little-endian.
// Contract: a block is one weight; its value is the stored float.
#pragma once

#include <cstdint>

#include "formats/quant/host_device.h"

namespace logitgate {

struct BlockF32 {
  static constexpr int n_weights = 1;
  float w;
};

// Weight i of the block, i in [0, n_weights).
LOGITGATE_HOST_DEVICE inline float weight_at(const BlockF32& block, int /*i*/) { return block.w; }

}  // namespace logitgate
