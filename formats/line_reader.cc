// Implements line_reader.h: a byte source (plain or zstd) under a growing line buffer.
// Contract: as there; a pipe's line is given as soon as its newline has arrived.
#include "formats/line_reader.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "formats/input_file.h"
#include "lib/error.h"

namespace logitgate {
namespace {

constexpr size_t kReadBytes = size_t{1} << 16;
constexpr unsigned char kZstdMagic[] = {0x28, 0xb5, 0x2f, 0xfd};

// The bytes of a file, decompressed where they are zstd frames.
class ByteSource {
 public:
  explicit ByteSource(const std::string& path) : file_(path), input_(kReadBytes) {
    while (available() < 4 && refill()) continue;
    const char* start = input_.data();
    const auto starts_with = [&](const void* magic, size_t n) {
      return available() >= n && std::memcmp(start, magic, n) == 0;
    };
    if (starts_with("\x1f\x8b", 2)) {
      fail(ErrorCode::unsupported,
           "{}: offset 0: gzip data, and plain or zstd-compressed JSON lines are read; "
           "give it through `gzip -dc FILE |`",
           name());
    }
    if (starts_with("\xff\xfe", 2) || starts_with("\xfe\xff", 2)) {
      fail(ErrorCode::unsupported, "{}: offset 0: UTF-16 text, and JSON lines are UTF-8", name());
    }
    if (starts_with("\xef\xbb\xbf", 3)) begin_ = 3;
    if (starts_with(kZstdMagic, sizeof(kZstdMagic))) {
      zstd_.reset(ZSTD_createDStream());
      if (zstd_ == nullptr) fail(ErrorCode::resource, "{}: no memory for zstd", name());
    }
  }

  const std::string& name() const { return file_.name(); }

  // At least one byte, or 0 at the end.
  size_t read(char* out, size_t n) {
    if (zstd_ != nullptr) return decompress(out, n);
    if (available() == 0 && !refill()) return 0;
    n = std::min(n, available());
    std::memcpy(out, input_.data() + begin_, n);
    begin_ += n;
    return n;
  }

 private:
  struct FreeStream {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };

  size_t available() const { return end_ - begin_; }

  bool refill() {
    if (begin_ == end_) begin_ = end_ = 0;
    const size_t got = file_.read_some(input_.data() + end_, input_.size() - end_);
    end_ += got;
    return got != 0;
  }

  size_t decompress(char* out, size_t n) {
    ZSTD_outBuffer output{out, n, 0};
    while (output.pos == 0) {
      if (available() == 0 && !refill() && !pending_output_) {
        if (!frame_ended_)
          fail(ErrorCode::corrupt, "{}: offset {}: the zstd stream is cut", name(), file_.offset());
        return 0;
      }
      ZSTD_inBuffer input{input_.data() + begin_, available(), 0};
      const size_t hint = ZSTD_decompressStream(zstd_.get(), &output, &input);
      if (ZSTD_isError(hint)) {
        fail(ErrorCode::corrupt, "{}: offset {}: damaged zstd stream: {}", name(),
             file_.offset() - available(), ZSTD_getErrorName(hint));
      }
      begin_ += input.pos;
      frame_ended_ = hint == 0;
      pending_output_ = output.pos == output.size && !frame_ended_;
    }
    return output.pos;
  }

  InputFile file_;
  std::vector<char> input_;
  size_t begin_ = 0;
  size_t end_ = 0;
  std::unique_ptr<ZSTD_DStream, FreeStream> zstd_;
  bool frame_ended_ = false;
  bool pending_output_ = false;
};

}  // namespace

struct LineReader::Impl {
  explicit Impl(const std::string& path) : source(path), buffer(kReadBytes + kLinePadding) {}

  // Room behind `end` for reading; moves the unread bytes to the front, or doubles the buffer.
  void make_room() {
    std::memmove(buffer.data(), buffer.data() + begin, end - begin);
    end -= begin;
    begin = 0;
    const size_t capacity = buffer.size() - kLinePadding;
    if (capacity - end < kReadBytes)
      buffer.resize(std::min(2 * capacity, kMaxLineBytes + 2 * kReadBytes) + kLinePadding);
  }

  void skip_newlines() {
    while (begin < end && buffer[begin] == '\n') {
      ++begin;
      ++line_number;
    }
  }

  [[noreturn]] void too_long() const {
    fail(ErrorCode::corrupt,
         "{}: line {}, column {}: the line has no end here, and one of at most {} bytes is read",
         source.name(), line_number + 1, kMaxLineBytes + 1, kMaxLineBytes);
  }

  ByteSource source;
  std::vector<char> buffer;  // the bytes [begin, end) are unread; kLinePadding bytes behind them are readable
  size_t begin = 0;
  size_t end = 0;
  uint64_t line_number = 0;
};

LineReader::LineReader(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
LineReader::~LineReader() = default;

const std::string& LineReader::name() const { return impl_->source.name(); }
uint64_t LineReader::line_number() const { return impl_->line_number; }

bool LineReader::next(std::string_view& line) {
  Impl& in = *impl_;
  size_t searched = 0;
  for (;;) {
    if (searched == 0) in.skip_newlines();
    const char* start = in.buffer.data() + in.begin;
    const size_t n = in.end - in.begin;
    const auto* newline = static_cast<const char*>(std::memchr(start + searched, '\n', n - searched));
    const size_t length = newline != nullptr ? static_cast<size_t>(newline - start) : n;
    if (length > kMaxLineBytes) in.too_long();
    if (newline != nullptr) {
      line = {start, length};
      in.begin += length + 1;
      ++in.line_number;
      return true;
    }
    searched = n;
    in.make_room();
    const size_t got = in.source.read(in.buffer.data() + in.end, in.buffer.size() - kLinePadding - in.end);
    in.end += got;
    if (got != 0) continue;
    if (n == 0) return false;
    line = {in.buffer.data(), n};
    in.begin = in.end;
    ++in.line_number;
    return true;
  }
}

}  // namespace logitgate
