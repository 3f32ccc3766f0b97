// Reads and writes NumPy .npy arrays of floats, a block of rows at a time.
// Contract: versions 1 to 3, C order, little-endian f2, f4, f8; the declared shape is checked against the file's size.
// Errors: Error{corrupt} or Error{unsupported} naming file and what is wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace logitgate {

class NpyReader {
 public:
  explicit NpyReader(const std::string& path);
  ~NpyReader();
  const std::vector<uint64_t>& shape() const;
  bool is_f64() const;  // f8; f2 and f4 are read as float
  // The next n values, in order; Error{corrupt} past the end.
  void read(std::span<float> out);
  void read(std::span<double> out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace logitgate
