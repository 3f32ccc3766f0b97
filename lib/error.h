// The one exception type of logitgate, and the formatting helper that throws it.
// Contract: an Error's message is one line, `FILE: where: what is wrong, and what would be right`, without
// the program's name; it is thrown where the trouble is found and caught in cmd/main.cc alone, which exits 2.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

namespace logitgate {

enum class ErrorCode {
  usage,         // the command line
  io,            // open, read, write, rename, a closed pipe
  corrupt,       // truncated, bit-flipped or hostile input
  unsupported,   // well-formed, but not something this build computes
  incomparable,  // two dumps that do not belong together
  resource,      // memory, device
};

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }

 private:
  ErrorCode code_;
  std::string message_;
};

// fail(ErrorCode::corrupt, "{}: offset {}: ...", path, offset) throws the Error.
template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(code, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace logitgate
