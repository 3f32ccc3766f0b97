// Shows how far a long verb is, on stderr: records, tokens, rate, time left.
// Contract: a terminal shows one line in place, ten times a second at most; elsewhere a line comes every 30
// s. Nothing is printed in mode never. update() is cheap enough to be called for every record; all calls come
// from one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace logitgate {

// auto_: in place on a terminal, else a line every 30 s. always: like auto_, and a first and last line
// wherever stderr goes.
enum class ProgressMode { auto_, always, never };
ProgressMode parse_progress(const std::string& text);  // Error{usage} for anything but auto, always, never

class Progress {
 public:
  // total_records, total_tokens: 0 where unknown (a pipe); then no time left is shown.
  Progress(std::string label, uint64_t total_records, uint64_t total_tokens, ProgressMode mode);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // What is done so far, as totals.
  void update(uint64_t records, uint64_t tokens);
  // The last line; without it (an error came) the destructor only ends the line in place.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  void print(bool last);

  std::string label_;
  uint64_t total_records_;
  uint64_t total_tokens_;
  ProgressMode mode_;
  bool in_place_;
  bool line_open_ = false;
  size_t line_length_ = 0;  // of the line in place, to blank what a shorter one leaves
  uint64_t records_ = 0;
  uint64_t tokens_ = 0;
  Clock::time_point start_;
  Clock::time_point next_;
};

}  // namespace logitgate
