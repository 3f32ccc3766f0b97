// Writes floats to an output as little-endian single or double precision. Internal to formats.
// Contract: equal types are copied bit by bit; other types are converted a block at a time, in bounded memory.
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>
#include <vector>

#include "formats/output_file.h"

namespace logitgate {

template <class To, class From>
void write_converted(OutputFile& out, std::span<const From> values) {
  if constexpr (std::is_same_v<To, From>) {
    out.write(values.data(), values.size_bytes());
  } else {
    constexpr size_t kBlock = 4096;
    std::vector<To> block(std::min(values.size(), kBlock));
    for (size_t done = 0; done < values.size(); done += kBlock) {
      const size_t n = std::min(kBlock, values.size() - done);
      for (size_t i = 0; i < n; ++i) block[i] = static_cast<To>(values[done + i]);
      out.write(block.data(), n * sizeof(To));
    }
  }
}

template <class From>
void write_floats(OutputFile& out, bool is_f64, std::span<const From> values) {
  is_f64 ? write_converted<double>(out, values) : write_converted<float>(out, values);
}

}  // namespace logitgate
