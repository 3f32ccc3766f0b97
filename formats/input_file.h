// A source of bytes: a file or stdin, read as a stream, and where it is a regular file also at an offset.
// Contract: read() returns fewer bytes than asked for at the end alone; errors are Error{io} naming the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace logitgate {

class InputFile {
 public:
  // path: a file, or "-" for stdin.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& name() const { return name_; }  // for messages: the path, or "stdin"
  bool seekable() const { return seekable_; }        // a regular file (stdin may be one)
  uint64_t size() const;                             // seekable: bytes from where reading began, now

  size_t read(void* data, size_t n);                            // the next bytes
  size_t read_some(void* data, size_t n);  // what is there, at least one byte before the end: for pipes that trickle
  size_t read_at(uint64_t offset, void* data, size_t n) const;  // seekable; does not move read()
  uint64_t offset() const { return offset_; }                   // bytes read so far by read()
  void seek(uint64_t offset);                                   // seekable: where read() goes on

 private:
  std::string name_;
  int fd_ = -1;
  bool seekable_ = false;
  uint64_t base_ = 0;  // stdin may have been read by others before us
  uint64_t offset_ = 0;
};

}  // namespace logitgate
