// Q8_0: blocks of 32 signed bytes that share a scale in IEEE half.
// Contract: weight i is float(d) · q[i], rounded once to float; scale first, then the bytes, without padding.
#pragma once

#include <cstdint>

#include "formats/quant/host_device.h"

namespace logitgate {

struct BlockQ8_0 {
  static constexpr int n_weights = 32;
  uint16_t d;     // scale, IEEE half
  int8_t qs[32];  // weight i is d · qs[i]
};

// The block's scale, exactly.
LOGITGATE_HOST_DEVICE inline float scale_of(const BlockQ8_0& block) { return float_from_f16(block.d); }

// Weight i of the block, i in [0, n_weights).
LOGITGATE_HOST_DEVICE inline float weight_at(const BlockQ8_0& block, int i) {
  return scale_of(block) * static_cast<float>(block.qs[i]);
}

}  // namespace logitgate
