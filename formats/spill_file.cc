// The spill file: O_TMPFILE, or mkostemp and unlink where the file system has no unnamed files.
// Contract: see spill_file.h.
#include "formats/spill_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "formats/output_file.h"
#include "lib/error.h"

namespace logitgate {

namespace {

std::string spill_directory(const std::string& beside) {
  if (beside.empty()) {
    const char* directory = std::getenv("TMPDIR");
    return directory != nullptr && *directory != '\0' ? directory : "/tmp";
  }
  const size_t slash = beside.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : beside.substr(0, slash);
}

}  // namespace

SpillFile::~SpillFile() {
  if (fd_ >= 0) ::close(fd_);
}

void SpillFile::open() {
  const std::string directory = spill_directory(beside_);
  name_ = "spill file in " + directory;
  fd_ = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd_ >= 0) return;
  std::string pattern = directory + "/.logitgate-spill-XXXXXX";
  fd_ = ::mkostemp(pattern.data(), O_CLOEXEC);
  if (fd_ < 0) fail_errno(name_, "open");
  ::unlink(pattern.c_str());
}

uint64_t SpillFile::put(ByteSpan bytes) {
  uint64_t at = 0;
  {
    const std::lock_guard lock(mutex_);
    if (fd_ < 0) open();
    if (waiting_ == 0) end_ = 0;
    at = end_;
    end_ += bytes.size();
    waiting_ += bytes.size();
    written_ += bytes.size();
  }
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(name_, "write");
    done += static_cast<size_t>(n);
  }
  return at;
}

void SpillFile::take(uint64_t at, size_t n, ByteBuffer& into) {
  into.resize(n);
  for (size_t done = 0; done < n;) {
    const ssize_t got = ::pread(fd_, into.data() + done, n - done, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(name_, "read");
    if (got == 0) fail(ErrorCode::io, "{}: lost what was written to it", name_);
    done += static_cast<size_t>(got);
  }
  // File systems that cannot make holes keep the space until the process ends.
  ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at), static_cast<off_t>(n));
  const std::lock_guard lock(mutex_);
  waiting_ -= n;
}

}  // namespace logitgate
