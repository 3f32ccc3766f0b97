// The header of a .npy file: parsing and making. Internal to formats/npy.
// Contract: parse accepts any Python dictionary literal of descr, fortran_order and shape, in any order, and nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace logitgate {

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  std::vector<uint64_t> shape;
};

// text: the header behind its length, which starts at byte `offset` of the file. Error{corrupt} naming file and offset.
NpyHeader parse_npy_header(const std::string& file, uint64_t offset, std::string_view text);

// Magic, version 1.0, length and header, padded to 128 bytes.
std::string make_npy_header(bool is_f64, uint64_t n_rows, uint64_t n_cols);

}  // namespace logitgate
