// Implements npy_header.h: a small parser of the one dictionary that NumPy writes.
// Contract: as there; linear in the header's length.
#include "formats/npy_header.h"

#include <fmt/format.h>

#include "formats/text.h"
#include "lib/error.h"

namespace logitgate {
namespace {

constexpr size_t kMaxDimensions = 64;  // NumPy's own bound
constexpr size_t kHeaderBytes = 128;

class HeaderParser {
 public:
  HeaderParser(const std::string& file, uint64_t offset, std::string_view text)
      : file_(file), offset_(offset), text_(text) {}

  NpyHeader parse() {
    expect('{');
    bool seen[3] = {};
    while (!take('}')) {
      const size_t at = position_;
      const std::string key = quoted();
      expect(':');
      const size_t which = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : 3;
      if (which == 3 || seen[which])
        wrong_at(at, fmt::format("the key '{}' once more, or unknown", printable(key)));
      seen[which] = true;
      if (which == 0) header_.descr = descr();
      if (which == 1) header_.fortran_order = boolean();
      if (which == 2) shape();
      if (!take(',') && peek() != '}') wrong("',' or '}' must follow");
    }
    if (!seen[0] || !seen[1] || !seen[2]) wrong("one of 'descr', 'fortran_order' and 'shape' is missing");
    if (peek() != '\0') wrong("something follows the dictionary");
    return std::move(header_);
  }

 private:
  [[noreturn]] void wrong_at(size_t at, std::string_view what) const {
    fail(ErrorCode::corrupt,
         "{}: offset {}: {} in the header; it must be like {{'descr': '<f4', 'fortran_order': False, "
         "'shape': (2, 3)}}",
         file_, offset_ + at, what);
  }
  [[noreturn]] void wrong(std::string_view what) const { wrong_at(position_, what); }

  // The next character that is not blank; 0 at the end.
  char peek() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\n')) ++position_;
    return position_ < text_.size() ? text_[position_] : '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++position_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) wrong(fmt::format("'{}' must follow", c));
  }
  bool take_word(std::string_view word) {
    peek();
    if (!text_.substr(position_).starts_with(word)) return false;
    position_ += word.size();
    return true;
  }

  std::string quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') wrong("a quoted string must follow");
    const size_t end = text_.find(quote, position_ + 1);
    if (end == std::string_view::npos) wrong("a string without an end");
    std::string value(text_.substr(position_ + 1, end - position_ - 1));
    position_ = end + 1;
    return value;
  }
  std::string descr() {
    if (peek() == '[')
      fail(ErrorCode::unsupported, "{}: an array of records; arrays of f2, f4 and f8 are read", file_);
    return quoted();
  }
  bool boolean() {
    if (take_word("True")) return true;
    if (!take_word("False")) wrong("True or False must follow");
    return false;
  }
  void shape() {
    expect('(');
    while (!take(')')) {
      if (header_.shape.size() == kMaxDimensions) wrong("more than 64 dimensions");
      header_.shape.push_back(integer());
      if (!take(',') && peek() != ')') wrong("',' or ')' must follow");
    }
  }
  uint64_t integer() {
    const char first = peek();
    if (first < '0' || first > '9') wrong("a dimension must be an integer of 0 or more");
    uint64_t value = 0;
    for (; position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9'; ++position_) {
      if (__builtin_mul_overflow(value, uint64_t{10}, &value) ||
          __builtin_add_overflow(value, static_cast<uint64_t>(text_[position_] - '0'), &value)) {
        wrong("a dimension of 2^64 or more");
      }
    }
    return value;
  }

  const std::string& file_;
  uint64_t offset_;
  std::string_view text_;
  size_t position_ = 0;
  NpyHeader header_;
};

}  // namespace

NpyHeader parse_npy_header(const std::string& file, uint64_t offset, std::string_view text) {
  return HeaderParser(file, offset, text).parse();
}

std::string make_npy_header(bool is_f64, uint64_t n_rows, uint64_t n_cols) {
  std::string header = fmt::format("{{'descr': '<f{}', 'fortran_order': False, 'shape': ({}, {}), }}",
                                   is_f64 ? 8 : 4, n_rows, n_cols);
  const size_t length = kHeaderBytes - 10;  // 86 characters at most before padding
  header.resize(length - 1, ' ');
  const std::string start("\x93NUMPY\x01\x00", 8);
  return start + static_cast<char>(length) + '\0' + header + '\n';
}

}  // namespace logitgate
