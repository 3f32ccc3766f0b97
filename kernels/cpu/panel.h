// The width of a panel: how many tokens lie side by side for the prefill kernels; and what a multiplication asks for ahead.
// Contract: the width is the same at every SIMD level, a multiple of two of the widest vectors: 128 bytes.
#pragma once

#include <cstddef>

namespace logitgate {

template <class T>
constexpr size_t kPanel = 128 / sizeof(T);

// Memory that the next multiplications will read. Each tile of the present one asks the cache for a part of it, a little in each
// step, so that its latency is hidden: a share of `panel`, and one of the `rows`.
struct Ahead {
  const std::byte* panel = nullptr;
  size_t panel_bytes = 0;
  const std::byte* rows = nullptr;
  size_t row_stride = 0;
  size_t row_bytes = 0;  // to ask for of each row
  size_t n_rows = 0;
};

}  // namespace logitgate
