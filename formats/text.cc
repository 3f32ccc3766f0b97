// Implements text.h.
// Contract: as there; plain byte arithmetic, no locale.
#include "formats/text.h"

#include <fmt/format.h>

#include <cstdint>

namespace logitgate {

size_t utf8_sequence(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool beyond = (first == 0xed && byte(1) > 0x9f) || (first == 0xf4 && byte(1) > 0x8f);
  return overlong || beyond ? 0 : length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_sequence(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    size_t length = utf8_sequence(text);
    const auto first = static_cast<uint8_t>(text[0]);
    const bool control = first < 0x20 || first == 0x7f ||
                         (length == 2 && first == 0xc2 && static_cast<uint8_t>(text[1]) < 0xa0);
    std::string piece;
    if (length == 0 || control) {
      length = length == 0 ? 1 : length;
      for (size_t i = 0; i < length; ++i) piece += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[i]));
    } else {
      piece = text.substr(0, length);
    }
    if (out.size() + piece.size() > max_bytes) return out + "...";
    out += piece;
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace logitgate
