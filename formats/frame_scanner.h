// Cuts a byte stream into zstd frames without decoding them, by walking their block headers.
// Contract: reads exactly up to the end of each frame's bytes; a frame that declares more content than
// allowed, or stores more bytes than that content can need, gives Error{corrupt} before it is read; so does a
// stream that ends within a frame.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "formats/byte_buffer.h"

namespace logitgate {

struct StoredFrame {
  uint64_t offset = 0;
  uint64_t content_size = 0;  // bytes it decodes to; skippable frames: 0
  bool skippable = false;     // bytes then hold magic and size alone: the scanner stands before its content
  ByteBuffer bytes;
};

class FrameScanner {
 public:
  // Reads up to n bytes; fewer at the end alone.
  using Source = std::function<size_t(void* data, size_t n)>;

  FrameScanner(std::string name, Source source) : name_(std::move(name)), source_(std::move(source)) {}

  // The next frame; false if the stream ends right here.
  bool next(StoredFrame& frame, uint64_t max_content);
  // Exactly n bytes, appended: the content of a skippable frame.
  void take(ByteBuffer& into, size_t n);

  const std::string& name() const { return name_; }
  uint64_t offset() const { return offset_; }
  // The source now delivers the bytes at this offset; what was read ahead is dropped.
  void moved_to(uint64_t offset);

 private:
  size_t take_some(ByteBuffer& into, size_t n);
  void read_frame_header(StoredFrame& frame, uint64_t max_content);
  void read_blocks(StoredFrame& frame);

  std::string name_;
  Source source_;
  ByteBuffer ahead_;
  size_t ahead_at_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace logitgate
