// What one task of the GEMM multiplies: a block of weight rows with some panels of tokens.
// Contract: block sizes are chosen for the caches and are no part of the result: a panel's part [kBlockK, kPanel] and a few weight
// rows lie in the first level, the parts of all panels, the weight block and its results in the second.
#pragma once

#include <cstddef>

#include "formats/quant/weight_type.h"
#include "kernels/cpu/panel.h"

namespace logitgate {

constexpr size_t kBlockRows = 192;              // at most; so many that a core's share of x passes seldom
constexpr size_t kBlockK = 256;                 // a multiple of every weight type's block
constexpr size_t kWeightStride = kBlockK + 16;  // so that rows do not fall on the same cache sets
constexpr size_t kBlockPanels = 16;             // panels in one pass over the weights

template <class T>
struct GemmBlock {
  WeightType type = WeightType::F32;
  const std::byte* rows = nullptr;  // the block's first weight row, in the file's bytes
  size_t row_bytes = 0;
  size_t n_rows = 0;  // at most kBlockRows
  size_t n_in = 0;
  const T* panels = nullptr;  // [panels, n_in, kPanel]
  size_t n_tokens = 0;
  T* y = nullptr;  // y[t·y_stride + r]
  size_t y_stride = 0;
  T* scratch = nullptr;  // [kBlockRows, kWeightStride] weights, then [panels, kBlockRows, kPanel] results
};

}  // namespace logitgate
