// The width of a panel: how many tokens lie side by side for the prefill kernels.
// Contract: the same at every SIMD level, a multiple of two of the widest vectors: 128 bytes.
#pragma once

#include <cstddef>

namespace logitgate {

template <class T>
constexpr size_t kPanel = 128 / sizeof(T);

}  // namespace logitgate
