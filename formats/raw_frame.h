// Assembles a zstd frame by hand: stored (raw) blocks written in place, then blocks that libzstd made.
// Contract: a standard frame with content size and checksum. What libzstd compressed comes last and begins its own frame, so
// that nothing in it refers to what stands before.
#pragma once

#include <cstdint>

#include "formats/byte_buffer.h"

struct XXH64_state_s;

namespace logitgate {

constexpr size_t kMaxZstdBlock = size_t{128} << 10;

class RawFrame {
 public:
  RawFrame();
  ~RawFrame();
  RawFrame(const RawFrame&) = delete;
  RawFrame& operator=(const RawFrame&) = delete;

  // stored_bound: of all that will be added, block headers included.
  void begin(ByteBuffer& frame, size_t stored_bound);
  // A stored block of n bytes, at most kMaxZstdBlock: where the caller is to write them.
  uint8_t* add_stored(size_t n);
  // The caller has written n bytes there: they enter the checksum. In the order of the content.
  void checksum(const uint8_t* bytes, size_t n);
  // The last blocks: a frame of libzstd's without content size and checksum, and the content it was made from.
  void end_with(ByteSpan compressed_frame, ByteSpan content, uint32_t content_size);

 private:
  ByteBuffer* frame_ = nullptr;
  XXH64_state_s* state_;
};

}  // namespace logitgate
