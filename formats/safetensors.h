// Writes safetensors files of float tensors, streamed one after another.
// Contract: the header is written first, so names and shapes are given beforehand; values follow in the order of
// the entries, without gaps. Errors: Error{corrupt} for entries or values that do not fit, Error{io}.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/output_file.h"

namespace logitgate {

struct SafetensorsEntry {
  std::string name;  // unique, valid UTF-8, not "__metadata__"
  bool is_f64 = false;
  std::vector<uint64_t> shape;
};

class SafetensorsWriter {
 public:
  // metadata: the header's "__metadata__"; empty: none. A header of more than 100 MB (the format's bound) is an
  // Error{unsupported}.
  SafetensorsWriter(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                    const std::map<std::string, std::string>& metadata, const OutputOptions& options);
  ~SafetensorsWriter();
  // The next values of the current tensor, never of two: float widens to F64, double rounds to F32.
  void write(std::span<const float> values);
  void write(std::span<const double> values);
  // Completes the file; Error{corrupt} where values are missing.
  void commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace logitgate
