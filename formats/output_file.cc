// Output files: OUT.part with a lock and a rename, or in-place writing to pipes and devices.
// Contract: see output_file.h; every system call's result is looked at, EINTR and short writes are continued.
#include "formats/output_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "lib/error.h"

namespace logitgate {

void fail_errno(const std::string& name, const char* action) {
  const int number = errno;
  const ErrorCode code = number == ENOMEM ? ErrorCode::resource : ErrorCode::io;
  if (number == EPIPE) fail(code, "{}: {}: the reader closed the pipe", name, action);
  fail(code, "{}: {}: {}", name, action, std::strerror(number));
}

namespace {

int open_retrying(const std::string& path, int flags, mode_t mode = 0) {
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// The descriptor that "-", /dev/stdout or /dev/fd/N means, or -1: reopening those would write from the start
// of the file.
int named_descriptor(const std::string& path) {
  if (path == "-" || path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view prefix : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(prefix)) continue;
    int fd = -1;
    const char* end = path.data() + path.size();
    const auto result = std::from_chars(path.data() + prefix.size(), end, fd);
    if (result.ec == std::errc() && result.ptr == end && fd >= 0) return fd;
  }
  return -1;
}

// Waits until a descriptor that others made non-blocking takes bytes again.
void wait_writable(int fd) {
  pollfd waiting{fd, POLLOUT, 0};
  while (::poll(&waiting, 1, -1) < 0 && errno == EINTR) {
  }
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// True if the path exists and is not a regular file: written in place. Throws for a directory.
bool is_special(const std::string& path, bool& exists) {
  struct stat status {};
  exists = ::stat(path.c_str(), &status) == 0;
  if (!exists) {
    if (errno == ENOENT || errno == ENOTDIR) {
      // A dangling link is something that exists: renaming over it would be a surprise.
      exists = ::lstat(path.c_str(), &status) == 0;
      return false;
    }
    fail_errno(path, "open");
  }
  if (S_ISDIR(status.st_mode)) fail(ErrorCode::io, "{}: is a directory; name a file in it", path);
  return !S_ISREG(status.st_mode);
}

}  // namespace

void check_output_is_free(const std::string& path, bool force) {
  if (named_descriptor(path) >= 0) return;
  bool exists = false;
  if (is_special(path, exists)) return;
  if (exists && !force) fail(ErrorCode::io, "{}: exists already; --force replaces it", path);
}

OutputFile::OutputFile(const std::string& path, const OutputOptions& options)
    : name_(path == "-" ? "stdout" : path), path_(path), force_(options.force) {
  if (path.empty()) fail(ErrorCode::usage, "output: the name is empty");
  bool exists = false;
  const int named = named_descriptor(path);
  try {
    if (named >= 0) {
      const int copy = ::fcntl(named, F_DUPFD_CLOEXEC, 3);
      if (copy < 0) fail_errno(name_, "open");
      open_in_place(copy, options);
    } else if (is_special(path, exists)) {
      const int fd = open_retrying(path, O_WRONLY | O_NOCTTY);
      if (fd < 0) fail_errno(name_, "open");
      open_in_place(fd, options);
    } else {
      check_output_is_free(path, options.force);
      part_ = path + ".part";
      open_part(options);
    }
  } catch (...) {
    if (fd_ >= 0) ::close(fd_);
    throw;
  }
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::open_in_place(int fd, const OutputOptions& options) {
  fd_ = fd;
  if (options.resume) fail(ErrorCode::usage, "{}: only a regular file can be resumed", name_);
  if (options.binary && ::isatty(fd) == 1) {
    fail(ErrorCode::io, "{}: is a terminal, and the output is binary; name a file with -o, or use a pipe",
         name_);
  }
}

void OutputFile::open_part(const OutputOptions& options) {
  while (!lock_part()) {
  }
  struct stat status {};
  if (::fstat(fd_, &status) != 0) fail_errno(part_, "stat");
  if (options.resume) existing_size_ = static_cast<uint64_t>(status.st_size);
  if (!options.resume && ::ftruncate(fd_, 0) != 0) fail_errno(part_, "truncate");
}

// Opens and locks OUT.part; false if it was renamed away between the two, so that the lock is on another
// name's file.
bool OutputFile::lock_part() {
  fd_ = open_retrying(part_, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
  if (fd_ < 0 && errno == ELOOP) fail(ErrorCode::io, "{}: is a symbolic link; remove it", part_);
  if (fd_ < 0) fail_errno(part_, "open");
  struct stat opened {};
  if (::fstat(fd_, &opened) != 0) fail_errno(part_, "stat");
  if (!S_ISREG(opened.st_mode)) fail(ErrorCode::io, "{}: is not a regular file; remove it", part_);
  int locked;
  do {
    locked = ::flock(fd_, LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  if (locked != 0 && errno == EWOULDBLOCK) {
    fail(ErrorCode::io, "{}: another process is writing this output; wait for it, or name another output",
         part_);
  }
  // File systems without locks (ENOTSUP, ENOLCK, ENOSYS) leave us unprotected, as they do everyone.
  struct stat named {};
  const bool same =
      ::lstat(part_.c_str(), &named) == 0 && named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
  if (!same) {
    ::close(fd_);
    fd_ = -1;
    return false;
  }
  if (named.st_nlink != 1) fail(ErrorCode::io, "{}: has other names (hard links); remove it", part_);
  return true;
}

void OutputFile::write(const void* data, size_t n) {
  write_at_end(static_cast<const char*>(data), n);
  offset_ += n;
}

void OutputFile::write_at_end(const char* data, size_t n) {
  while (n > 0) {
    const ssize_t done = ::write(fd_, data, n);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      wait_writable(fd_);
      continue;
    }
    if (done < 0) fail_errno(name_, "write");
    data += done;
    n -= static_cast<size_t>(done);
  }
}

void OutputFile::overwrite(uint64_t at, const void* data, size_t n) {
  if (in_place()) fail(ErrorCode::io, "{}: cannot seek; name a regular file", name_);
  const char* bytes = static_cast<const char*>(data);
  while (n > 0) {
    const ssize_t done = ::pwrite(fd_, bytes, n, static_cast<off_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_errno(name_, "write");
    bytes += done;
    at += static_cast<uint64_t>(done);
    n -= static_cast<size_t>(done);
  }
}

size_t OutputFile::read_existing(uint64_t at, void* data, size_t n) const {
  char* bytes = static_cast<char*>(data);
  size_t total = 0;
  while (total < n) {
    const ssize_t done = ::pread(fd_, bytes + total, n - total, static_cast<off_t>(at + total));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_errno(part_, "read");
    if (done == 0) break;
    total += static_cast<size_t>(done);
  }
  return total;
}

void OutputFile::continue_at(uint64_t size) {
  if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) fail_errno(part_, "truncate");
  if (::lseek(fd_, static_cast<off_t>(size), SEEK_SET) < 0) fail_errno(part_, "seek");
  offset_ = size;
}

void OutputFile::commit() {
  if (committed_) return;
  // Pipes and devices have nothing to sync and say so with EINVAL (EROFS, ENOTSUP on some systems).
  if (::fsync(fd_) != 0 && !in_place()) fail_errno(name_, "sync");
  if (!in_place()) rename_part();
  const int closing = fd_;
  fd_ = -1;
  committed_ = true;
  if (::close(closing) != 0 && errno != EINTR) fail_errno(name_, "close");
}

void OutputFile::rename_part() {
  // Somebody may have made OUT while we worked: without --force it is theirs.
  int renamed = -1;
  if (!force_) {
    renamed = ::renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
    if (renamed != 0 && errno == EEXIST) {
      fail(ErrorCode::io, "{}: was made by somebody else meanwhile; the result is in {}", path_, part_);
    }
    const bool unknown_flag = renamed != 0 && (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP);
    if (renamed != 0 && !unknown_flag) fail_errno(path_, "rename");
    if (renamed != 0) check_output_is_free(path_, false);
  }
  if (renamed != 0 && ::rename(part_.c_str(), path_.c_str()) != 0) fail_errno(path_, "rename");
  sync_directory();
}

void OutputFile::sync_directory() const {
  const int directory = open_retrying(directory_of(path_), O_RDONLY | O_DIRECTORY);
  if (directory < 0) return;  // readable directories alone can be synced; the rename itself has succeeded
  ::fsync(directory);
  ::close(directory);
}

}  // namespace logitgate
