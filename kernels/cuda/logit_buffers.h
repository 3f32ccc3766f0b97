// The two halves that logits pass through on their way to the host.
// Contract: a half's device memory may be written once `copied` is reached, its host memory once its chunk
// was consumed.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/cuda/status.h"

namespace logitgate::cuda {

struct LogitBuffers {
  static constexpr size_t kChunkBytes = size_t{160} << 20;

  struct Half {
    DeviceArray device{"logits"};
    Buffer host;
    Event computed;
    Event copied;
  };
  std::array<Half, 2> half;

  // As many rows as fit, in multiples of 128 where that many do: a GEMM's tiles stay whole.
  static int64_t rows_a_chunk(size_t row_bytes) {
    const int64_t fit = static_cast<int64_t>(kChunkBytes / std::max<size_t>(row_bytes, 1));
    return fit >= 128 ? std::min<int64_t>(fit / 128 * 128, 8192) : std::max<int64_t>(fit, 1);
  }
  void reserve(size_t n_bytes) {
    for (Half& h : half) {
      h.device.reserve(n_bytes);
      if (h.host.n_bytes() < n_bytes) {
        h.host = Buffer();
        h.host = pinned_allocate(n_bytes, "logits");
      }
    }
  }
  size_t device_bytes() const { return half[0].device.n_bytes() + half[1].device.n_bytes(); }
};

}  // namespace logitgate::cuda
