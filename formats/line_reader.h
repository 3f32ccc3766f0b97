// Lines of a text file or stdin, plain or zstd-compressed (told by content, whatever the name).
// Contract: streams; memory is bounded by the longest line, which is at most kMaxLineBytes, and zstd's window (128 MiB at most).
// A byte-order mark of UTF-8 at the start is skipped. Errors: Error{io}; Error{corrupt} for a damaged or cut zstd stream and a
// line that is too long; Error{unsupported} for gzip or UTF-16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace logitgate {

inline constexpr size_t kMaxLineBytes = size_t{64} << 20;  // some eight million tokens
inline constexpr size_t kLinePadding = 64;                 // readable bytes behind every line

class LineReader {
 public:
  // path: a file, or "-" for stdin.
  explicit LineReader(const std::string& path);
  ~LineReader();

  const std::string& name() const;  // for messages
  // The next line that is not empty, without its newline, valid until the next call and followed by kLinePadding readable bytes; false at
  // the end.
  bool next(std::string_view& line);
  uint64_t line_number() const;  // of the last line given, from 1

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace logitgate
