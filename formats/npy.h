// Reads and writes NumPy .npy arrays of floats, a block of values at a time.
// Contract: versions 1 to 3, C order, little-endian f2, f4, f8; the declared shape is checked against the file's size
// (of a pipe, against what arrives). Errors: Error{corrupt} or Error{unsupported} naming file and what is wrong, Error{io}.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/output_file.h"

namespace logitgate {

class NpyReader {
 public:
  // path: a file, or "-" for stdin.
  explicit NpyReader(const std::string& path);
  ~NpyReader();
  const std::vector<uint64_t>& shape() const;
  uint64_t n_values() const;  // the product of the shape
  bool is_f64() const;        // f8; f2 and f4 are read as float, without loss
  // The next values, in order; Error{corrupt} past the end. Reading f8 as float rounds to nearest.
  void read(std::span<float> out);
  void read(std::span<double> out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes [n_rows, n_cols] as f4 or f8, version 1.0, data from byte 128 on.
class NpyWriter {
 public:
  // n_rows: none where it is not known beforehand; it is then counted, which needs a regular file as output.
  NpyWriter(const std::string& path, bool is_f64, std::optional<uint64_t> n_rows, uint64_t n_cols,
            const OutputOptions& options);
  ~NpyWriter();
  // The next values, in order: float widens to f8, double rounds to f4.
  void write(std::span<const float> values);
  void write(std::span<const double> values);
  // Completes the file. Values that do not make the rows declared, or no whole rows, are an Error{corrupt}.
  void commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace logitgate
