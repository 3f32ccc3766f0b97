// A temporary file without a name that holds blocks until their turn comes.
// Contract: created with the first block, beside the output (or in $TMPDIR where the output has no folder to
// write to); gone with the process. Space of blocks taken back is given back to the disk. Errors: Error{io}.
// Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "formats/byte_buffer.h"

namespace logitgate {

class SpillFile {
 public:
  // beside: the output's path; empty: $TMPDIR.
  explicit SpillFile(std::string beside) : beside_(std::move(beside)) {}
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  uint64_t put(ByteSpan bytes);                        // returns where they are
  void take(uint64_t at, size_t n, ByteBuffer& into);  // reads them back and frees their space
  uint64_t bytes_written() const { return written_; }  // all that was ever spilled

 private:
  void open();

  std::string beside_;
  std::string name_;
  std::mutex mutex_;
  int fd_ = -1;
  uint64_t end_ = 0;
  uint64_t waiting_ = 0;  // bytes in the file that were not taken back
  uint64_t written_ = 0;
};

}  // namespace logitgate
