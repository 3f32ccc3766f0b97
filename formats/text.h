// Text for messages: untrusted bytes made printable on one line.
// Contract: the result holds no control character and no invalid UTF-8, and is at most max_bytes (and an
// ellipsis) long.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace logitgate {

// The length of the valid UTF-8 sequence that text starts with; 0 where it starts with none.
size_t utf8_sequence(std::string_view text);

// Whether all of text is valid UTF-8 (no surrogates, no overlong forms).
bool is_utf8(std::string_view text);

// The text with control characters and invalid bytes as \xNN, cut to max_bytes.
std::string printable(std::string_view text, size_t max_bytes = 80);

}  // namespace logitgate
