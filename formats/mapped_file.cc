// Implements mapped_file.h with mmap.
// Contract: as there; the descriptor is closed once the mapping exists.
#include "formats/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "lib/error.h"

namespace logitgate {

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(ErrorCode::io, "{}: cannot open: {}", path, std::strerror(errno));
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    fail(ErrorCode::io, "{}: is not a regular file, which it must be to be mapped into memory", path);
  }
  size_ = static_cast<size_t>(info.st_size);
  void* data = size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  const int error = errno;
  ::close(fd);
  if (data == MAP_FAILED)
    fail(ErrorCode::io, "{}: cannot map {} bytes: {}", path, size_, std::strerror(error));
  data_ = data;
}

MappedFile::MappedFile(MappedFile&& other) noexcept { swap(other); }

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  MappedFile(std::move(other)).swap(*this);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

void MappedFile::swap(MappedFile& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
}

}  // namespace logitgate
