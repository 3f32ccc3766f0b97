// Implements the progress reporter; see progress.h.
// Contract: stderr only, and write errors there are ignored: progress never makes a run fail.
#include "cmd/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "lib/error.h"

namespace logitgate {
namespace {

constexpr std::chrono::milliseconds kInPlace{100};
constexpr std::chrono::seconds kLines{30};

// A terminal that understands a carriage return. Nothing else is asked of it: no colour and no escape, so
// that NO_COLOR has nothing to switch off.
bool terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && term != nullptr && std::string(term) != "dumb";
}

std::string duration(double seconds) {
  const auto total = static_cast<uint64_t>(std::clamp(seconds + 0.5, 0.0, 360000.0));
  if (total >= 3600) return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  return fmt::format("{}:{:02}", total / 60, total % 60);
}

// The text of one report, without line control.
std::string progress_line(const std::string& label, uint64_t records, uint64_t tokens, uint64_t total_records,
                          uint64_t total_tokens, double seconds) {
  std::string line = fmt::format("{}: {}", label, records);
  if (total_records != 0) line += fmt::format("/{}", total_records);
  line += fmt::format(" records, {}", tokens);
  if (total_tokens != 0) line += fmt::format("/{}", total_tokens);
  line += " tokens";
  const double rate = seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  if (rate > 0) line += fmt::format(", {:.{}f} tok/s", rate, rate < 100 ? 1 : 0);
  if (rate > 0 && tokens < total_tokens) {
    line += fmt::format(", {} left", duration(static_cast<double>(total_tokens - tokens) / rate));
  } else {
    line += fmt::format(", {}", duration(seconds));
  }
  return line;
}

}  // namespace

ProgressMode parse_progress(const std::string& text) {
  if (text == "auto") return ProgressMode::auto_;
  if (text == "always") return ProgressMode::always;
  if (text == "never") return ProgressMode::never;
  fail(ErrorCode::usage, "--progress: '{}' is not valid; expected auto, always or never", text);
}

Progress::Progress(std::string label, uint64_t total_records, uint64_t total_tokens, ProgressMode mode)
    : label_(std::move(label)),
      total_records_(total_records),
      total_tokens_(total_tokens),
      mode_(mode),
      in_place_(terminal()),
      start_(Clock::now()),
      next_(start_ + (in_place_ ? Clock::duration(kInPlace) : Clock::duration(kLines))) {
  if (mode_ == ProgressMode::always) print(false);
}

Progress::~Progress() {
  if (line_open_) std::fputc('\n', stderr);
}

void Progress::update(uint64_t records, uint64_t tokens) {
  records_ = records;
  tokens_ = tokens;
  if (mode_ == ProgressMode::never) return;
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + (in_place_ ? Clock::duration(kInPlace) : Clock::duration(kLines));
  print(false);
}

void Progress::finish() {
  // A short run that nobody watches has nothing to say.
  if (mode_ == ProgressMode::always || (mode_ == ProgressMode::auto_ && in_place_)) print(true);
}

void Progress::print(bool last) {
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  std::string line = progress_line(label_, records_, tokens_, total_records_, total_tokens_, seconds);
  line_open_ = in_place_ && !last;
  if (in_place_) {
    const size_t length = line.size();
    line = "\r" + line + std::string(length < line_length_ ? line_length_ - length : 0, ' ');
    line_length_ = length;
  }
  std::fputs(line.c_str(), stderr);
  if (!line_open_) std::fputc('\n', stderr);
  std::fflush(stderr);
}

}  // namespace logitgate
