// A file mapped into memory for reading.
// Contract: only regular files; an empty one maps to no bytes. Errors: Error{io} naming the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace logitgate {

class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void swap(MappedFile& other) noexcept;
  std::string path_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace logitgate
