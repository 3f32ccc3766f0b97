// RFC 8878, by hand: magic, descriptor 0xA4 (single segment, four bytes of content size, checksum), blocks, checksum.
// Contract: see raw_frame.h.
#include "formats/raw_frame.h"

#include <xxhash.h>

#include <new>

#include "lib/error.h"

namespace logitgate {

namespace {

constexpr uint32_t kFrameMagic = 0xFD2FB528;
constexpr uint8_t kDescriptor = 0xA4;
constexpr size_t kFrameHeaderBytes = 9;
constexpr size_t kContentSizeAt = 5;
constexpr size_t kBlockOverhead = 3;
constexpr size_t kChecksumBytes = 4;
constexpr size_t kPlainHeaderBytes = 6;  // libzstd's: magic, descriptor 0, window

}  // namespace

RawFrame::RawFrame() : state_(XXH64_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
}

RawFrame::~RawFrame() { XXH64_freeState(state_); }

void RawFrame::begin(ByteBuffer& frame, size_t stored_bound) {
  frame_ = &frame;
  frame.clear();
  frame.reserve(kFrameHeaderBytes + stored_bound + kChecksumBytes);
  frame.put(kFrameMagic);
  frame.put(kDescriptor);
  frame.put(uint32_t{0});  // the content size, once it is known
  XXH64_reset(state_, 0);
}

uint8_t* RawFrame::add_stored(size_t n) {
  const uint32_t header = static_cast<uint32_t>(n) << 3;  // not the last one, type 0
  frame_->append(&header, kBlockOverhead);
  const size_t at = frame_->size();
  if (at + n > frame_->capacity())
    fail(ErrorCode::resource, "block: {} bytes are more than were asked for", at + n);
  frame_->resize(at + n);
  return frame_->data() + at;
}

void RawFrame::checksum(const uint8_t* bytes, size_t n) { XXH64_update(state_, bytes, n); }

void RawFrame::end_with(ByteSpan compressed_frame, ByteSpan content, uint32_t content_size) {
  const bool plain = compressed_frame.size() > kPlainHeaderBytes && compressed_frame[4] == 0;
  if (!plain) fail(ErrorCode::resource, "zstd: made a frame of another kind than asked for");
  const ByteSpan blocks = compressed_frame.subspan(kPlainHeaderBytes);
  frame_->append(blocks.data(), blocks.size());
  checksum(content.data(), content.size());
  std::memcpy(frame_->data() + kContentSizeAt, &content_size, sizeof content_size);
  frame_->put(static_cast<uint32_t>(XXH64_digest(state_)));
}

}  // namespace logitgate
