// Input files: read(2) and pread(2) with EINTR and short reads continued.
// Contract: see input_file.h.
#include "formats/input_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "formats/output_file.h"
#include "lib/error.h"

namespace logitgate {

InputFile::InputFile(const std::string& path) : name_(path == "-" ? "stdin" : path) {
  do {
    fd_ = path == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                      : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  } while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) fail_errno(name_, "open");
  struct stat status {};
  if (::fstat(fd_, &status) == 0 && S_ISDIR(status.st_mode)) {
    ::close(fd_);
    fail(ErrorCode::io, "{}: is a directory; name a file", name_);
  }
  seekable_ = S_ISREG(status.st_mode);
  const off_t at = seekable_ ? ::lseek(fd_, 0, SEEK_CUR) : 0;
  if (at < 0) seekable_ = false;
  if (at > 0) base_ = static_cast<uint64_t>(at);
}

InputFile::~InputFile() { ::close(fd_); }

uint64_t InputFile::size() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail_errno(name_, "stat");
  const uint64_t whole = static_cast<uint64_t>(status.st_size);
  return whole > base_ ? whole - base_ : 0;
}

size_t InputFile::read(void* data, size_t n) {
  char* bytes = static_cast<char*>(data);
  size_t total = 0;
  while (total < n) {
    const size_t got = read_some(bytes + total, n - total);
    if (got == 0) break;
    total += got;
  }
  return total;
}

size_t InputFile::read_some(void* data, size_t n) {
  size_t total = 0;
  if (seekable_) {
    total = read_at(offset_, data, n);
  } else {
    while (n > 0) {
      const ssize_t got = ::read(fd_, data, n);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        pollfd waiting{fd_, POLLIN, 0};
        ::poll(&waiting, 1, -1);
        continue;
      }
      if (got < 0) fail_errno(name_, "read");
      total = static_cast<size_t>(got);
      break;
    }
  }
  offset_ += total;
  return total;
}

size_t InputFile::read_at(uint64_t offset, void* data, size_t n) const {
  char* bytes = static_cast<char*>(data);
  size_t total = 0;
  while (total < n) {
    const ssize_t got = ::pread(fd_, bytes + total, n - total, static_cast<off_t>(base_ + offset + total));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(name_, "read");
    if (got == 0) break;
    total += static_cast<size_t>(got);
  }
  return total;
}

void InputFile::seek(uint64_t offset) {
  if (!seekable_) fail(ErrorCode::io, "{}: cannot seek; name a regular file", name_);
  offset_ = offset;
}

}  // namespace logitgate
