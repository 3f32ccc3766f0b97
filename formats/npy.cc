// Implements npy.h over InputFile and OutputFile.
// Contract: as there; buffers are bounded whatever the header says.
#include "formats/npy.h"

#include <algorithm>
#include <cstring>

#include "formats/float_stream.h"
#include "formats/input_file.h"
#include "formats/npy_header.h"
#include "formats/quant/host_device.h"
#include "formats/text.h"
#include "lib/error.h"

namespace logitgate {
namespace {

constexpr size_t kMaxHeaderBytes = size_t{1} << 20;
constexpr size_t kBlock = size_t{1} << 16;  // values converted at once

}  // namespace

struct NpyReader::Impl {
  explicit Impl(const std::string& path) : input(path) {
    const NpyHeader header = read_header();
    if (header.descr != "<f2" && header.descr != "<f4" && header.descr != "<f8") {
      fail(ErrorCode::unsupported,
           "{}: elements of type '{}'; little-endian floats ('<f2', '<f4', '<f8') are read", input.name(),
           printable(header.descr));
    }
    if (header.fortran_order) {
      fail(ErrorCode::unsupported, "{}: the array is in Fortran order; save numpy.ascontiguousarray(a)",
           input.name());
    }
    item_bytes = static_cast<size_t>(header.descr[2] - '0');
    shape = header.shape;
    check_size();
  }

  void take(void* data, size_t n, std::string_view what) {
    const uint64_t at = input.offset();
    const size_t got = input.read(data, n);
    if (got == n) return;
    fail(ErrorCode::corrupt, "{}: offset {}: {} takes {} bytes but the file ends after {}: it is cut",
         input.name(), at, what, n, got);
  }

  NpyHeader read_header() {
    unsigned char start[8] = {};
    const size_t got = input.read(start, sizeof(start));
    if (got < 6 || std::memcmp(start, "\x93NUMPY", 6) != 0) {
      const bool zip = std::memcmp(start, "PK\x03\x04", 4) == 0;
      const std::string_view text(reinterpret_cast<const char*>(start), std::min<size_t>(got, 6));
      fail(ErrorCode::corrupt,
           "{}: offset 0: the file starts with '{}', and a .npy array with '\\x93NUMPY'{}", input.name(),
           printable(text), zip ? "; this is a zip (.npz): take the array out of it" : "");
    }
    if (got < 8 || start[6] < 1 || start[6] > 3 || start[7] != 0) {
      fail(ErrorCode::unsupported, "{}: offset 6: version {}.{} of the format, and 1.0, 2.0 and 3.0 are read",
           input.name(), start[6], start[7]);
    }
    uint32_t length = 0;
    const size_t length_bytes = start[6] == 1 ? 2 : 4;
    take(&length, length_bytes, "the header's length");
    if (length > kMaxHeaderBytes) {
      fail(ErrorCode::corrupt, "{}: offset 8: a header of {} bytes, and at most {} are read", input.name(),
           length, kMaxHeaderBytes);
    }
    std::string text(length, '\0');
    take(text.data(), length, "the header");
    return parse_npy_header(input.name(), 8 + length_bytes, text);
  }

  void check_size() {
    uint64_t n_bytes = 0;
    n_values = 1;
    const bool empty = std::count(shape.begin(), shape.end(), uint64_t{0}) > 0;
    for (const uint64_t n : shape) {
      if (!empty && __builtin_mul_overflow(n_values, n, &n_values)) {
        fail(ErrorCode::corrupt, "{}: the shape has 2^64 elements or more", input.name());
      }
    }
    if (empty) n_values = 0;
    if (__builtin_mul_overflow(n_values, uint64_t{item_bytes}, &n_bytes)) {
      fail(ErrorCode::corrupt, "{}: the shape takes 2^64 bytes or more", input.name());
    }
    if (!input.seekable()) return;
    const uint64_t size = input.size();
    const uint64_t n_data = size > input.offset() ? size - input.offset() : 0;
    if (n_data != n_bytes) {
      fail(ErrorCode::corrupt, "{}: offset {}: the shape ({}) takes {} bytes, and the file has {}: it is {}",
           input.name(), input.offset(), fmt::join(shape, ", "), n_bytes, n_data,
           n_data < n_bytes ? "cut" : "too long");
    }
  }

  template <class From, class To>
  void read_converted(std::span<To> out) {
    std::vector<From> block(std::min(out.size(), kBlock));
    for (size_t done = 0; done < out.size(); done += kBlock) {
      const size_t n = std::min(kBlock, out.size() - done);
      take(block.data(), n * sizeof(From), "a block of values");
      for (size_t i = 0; i < n; ++i) {
        if constexpr (sizeof(From) == 2) {
          out[done + i] = static_cast<To>(float_from_f16(block[i]));
        } else {
          out[done + i] = static_cast<To>(block[i]);
        }
      }
    }
  }

  template <class To>
  void read(std::span<To> out) {
    if (out.size() > n_values - n_read) {
      fail(ErrorCode::corrupt, "{}: {} values wanted behind the first {}, and the array has {}", input.name(),
           out.size(), n_read, n_values);
    }
    n_read += out.size();
    if (item_bytes == sizeof(To)) return take(out.data(), out.size_bytes(), "a block of values");
    if (item_bytes == 2) return read_converted<uint16_t>(out);
    item_bytes == 4 ? read_converted<float>(out) : read_converted<double>(out);
  }

  // The array is read whole: nothing may follow on a pipe.
  void check_end() {
    char byte = 0;
    if (n_read == n_values && input.read(&byte, 1) != 0) {
      fail(ErrorCode::corrupt, "{}: offset {}: the shape ({}) ends here, and the file goes on", input.name(),
           input.offset() - 1, fmt::join(shape, ", "));
    }
  }

  InputFile input;
  size_t item_bytes = 4;
  std::vector<uint64_t> shape;
  uint64_t n_values = 0;
  uint64_t n_read = 0;
};

NpyReader::NpyReader(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
NpyReader::~NpyReader() = default;
const std::vector<uint64_t>& NpyReader::shape() const { return impl_->shape; }
uint64_t NpyReader::n_values() const { return impl_->n_values; }
bool NpyReader::is_f64() const { return impl_->item_bytes == 8; }
void NpyReader::read(std::span<float> out) {
  impl_->read(out);
  impl_->check_end();
}
void NpyReader::read(std::span<double> out) {
  impl_->read(out);
  impl_->check_end();
}

struct NpyWriter::Impl {
  Impl(const std::string& path, bool f64, std::optional<uint64_t> rows, uint64_t cols,
       const OutputOptions& options)
      : out(path, options), is_f64(f64), n_rows(rows), n_cols(cols) {
    if (!n_rows && out.in_place()) {
      fail(ErrorCode::io,
           "{}: how many rows there are is not known yet, so the output must be a regular file", out.name());
    }
    out.write(make_npy_header(is_f64, n_rows.value_or(0), n_cols));
  }

  template <class T>
  void write(std::span<const T> values) {
    n_values += values.size();
    write_floats(out, is_f64, values);
  }

  OutputFile out;
  bool is_f64;
  std::optional<uint64_t> n_rows;
  uint64_t n_cols;
  uint64_t n_values = 0;
};

NpyWriter::NpyWriter(const std::string& path, bool is_f64, std::optional<uint64_t> n_rows, uint64_t n_cols,
                     const OutputOptions& options)
    : impl_(std::make_unique<Impl>(path, is_f64, n_rows, n_cols, options)) {}
NpyWriter::~NpyWriter() = default;
void NpyWriter::write(std::span<const float> values) { impl_->write(values); }
void NpyWriter::write(std::span<const double> values) { impl_->write(values); }

void NpyWriter::commit() {
  Impl& w = *impl_;
  const uint64_t n_rows = w.n_cols == 0 ? 0 : w.n_values / w.n_cols;
  const bool whole = w.n_cols == 0 ? w.n_values == 0 : w.n_values % w.n_cols == 0;
  if (!whole || n_rows != w.n_rows.value_or(n_rows)) {
    fail(ErrorCode::corrupt, "{}: {} values were written, and {} rows of {} declared", w.out.name(),
         w.n_values, w.n_rows.value_or(n_rows), w.n_cols);
  }
  if (!w.n_rows) {
    const std::string header = make_npy_header(w.is_f64, n_rows, w.n_cols);
    w.out.overwrite(0, header.data(), header.size());
  }
  w.out.commit();
}

}  // namespace logitgate
