// Implements FileProbe; see file_kind.h.
// Contract: a pipe's first bytes are put back by a thread that feeds another pipe, which takes the place of stdin.
#include "cmd/file_kind.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "formats/input_file.h"
#include "formats/output_file.h"
#include "lib/error.h"

namespace logitgate {
namespace {

constexpr size_t kHeadBytes = 4096;
constexpr std::string_view kGgufMagic = "GGUF";
constexpr std::string_view kZstdMagic = "\x28\xb5\x2f\xfd";
constexpr std::string_view kDumpTag =
    "LGHD";  // what a dump's first frame holds first: formats/dump_format.md

// What the zstd stream starts with; empty where it cannot be told from these bytes.
std::string decompress_start(std::string_view head) {
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  std::array<char, kDumpTag.size()> start{};
  ZSTD_inBuffer in{head.data(), head.size(), 0};
  ZSTD_outBuffer out{start.data(), start.size(), 0};
  while (context != nullptr && in.pos < in.size && out.pos < out.size) {
    if (ZSTD_isError(ZSTD_decompressStream(context.get(), &out, &in))) break;
  }
  return {start.data(), out.pos};
}

FileKind kind_of(std::string_view head) {
  if (head.starts_with(kGgufMagic)) return FileKind::model;
  if (head.starts_with(kZstdMagic) && decompress_start(head) == kDumpTag) return FileKind::dump;
  return FileKind::batch;
}

bool write_all(int fd, const char* data, size_t n) {
  while (n > 0) {
    const ssize_t written = write(fd, data, n);
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) {
      data += written;
      n -= static_cast<size_t>(written);
    }
  }
  return true;
}

// Copies `head` and what follows on `from` to `to`. A reader that went away is its own business.
void relay(const std::string& head, int from, int to, std::atomic<int>& read_errno) {
  std::array<char, 1 << 16> bytes;
  bool open = write_all(to, head.data(), head.size());
  while (open) {
    const ssize_t n = read(from, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) read_errno = errno;
    open = n > 0 && write_all(to, bytes.data(), static_cast<size_t>(n));
  }
  close(to);
  close(from);
}

std::shared_ptr<std::atomic<int>> unread_stdin(std::string head) {
  int ends[2];
  const int from = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  if (from < 0 || pipe2(ends, O_CLOEXEC) != 0 || dup2(ends[0], STDIN_FILENO) < 0) fail_errno("stdin", "pipe");
  close(ends[0]);
  auto read_errno = std::make_shared<std::atomic<int>>(0);
  std::thread([=, to = ends[1], head = std::move(head)] { relay(head, from, to, *read_errno); }).detach();
  return read_errno;
}

}  // namespace

FileProbe::FileProbe(const std::string& input) {
  struct stat status {};
  if (input != "-" && stat(input.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
    fail(ErrorCode::unsupported, "{}: is a directory; expected a GGUF file, a dump or a token batch", input);
  }
  InputFile file(input);
  name_ = file.name();
  std::string head(kHeadBytes, '\0');
  head.resize(file.seekable() ? file.read_at(0, head.data(), head.size())
                              : file.read(head.data(), head.size()));
  kind_ = kind_of(head);
  if (file.seekable()) return;
  if (input != "-")
    fail(ErrorCode::unsupported, "{}: is not a regular file; expected one, or - for stdin", input);
  relay_errno_ = unread_stdin(std::move(head));
}

void FileProbe::check_stdin() const {
  if (relay_errno_ == nullptr || *relay_errno_ == 0) return;
  errno = *relay_errno_;
  fail_errno(name_, "read");
}

}  // namespace logitgate
