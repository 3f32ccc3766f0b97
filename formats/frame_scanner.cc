// The frame walk of RFC 8878: frame header, then blocks of three header bytes and their content, then the
// checksum. Contract: see frame_scanner.h.
#include "formats/frame_scanner.h"

#include <algorithm>

#include "formats/dump_frames.h"
#include "lib/error.h"

namespace logitgate {

namespace {

constexpr uint32_t kFrameMagic = 0xFD2FB528;
constexpr uint32_t kSkippableMagic = 0x184D2A50;
constexpr size_t kReadAhead = size_t{16} << 10;
constexpr size_t kMaxBlock = size_t{128} << 10;
constexpr size_t kChecksumBytes = 4;
constexpr uint8_t kChecksumFlag = 0x04;
constexpr uint8_t kReservedFlags = 0x18;
constexpr uint8_t kSingleSegmentFlag = 0x20;
constexpr uint8_t kDictionaryBits = 0x03;

enum BlockType : uint32_t { kRaw = 0, kRle = 1, kCompressed = 2 };

// What a frame of this content can take: every block stored, at most one extra block header a plane, header
// and checksum.
uint64_t max_stored(uint64_t content_size) { return content_size + content_size / 128 + 1024; }

uint32_t read_u24(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8 |
         static_cast<uint32_t>(bytes[2]) << 16;
}

}  // namespace

void FrameScanner::moved_to(uint64_t offset) {
  ahead_.clear();
  ahead_at_ = 0;
  offset_ = offset;
}

size_t FrameScanner::take_some(ByteBuffer& into, size_t n) {
  const size_t buffered = std::min(n, ahead_.size() - ahead_at_);
  into.append(ahead_.data() + ahead_at_, buffered);
  ahead_at_ += buffered;
  offset_ += buffered;
  const size_t missing = n - buffered;
  if (missing == 0) return n;
  if (missing >= kReadAhead) {
    const size_t before = into.size();
    into.resize(before + missing);
    const size_t got = source_(into.data() + before, missing);
    into.resize(before + got);
    offset_ += got;
    return buffered + got;
  }
  ahead_.resize(kReadAhead);
  ahead_.resize(source_(ahead_.data(), kReadAhead));
  ahead_at_ = std::min(missing, ahead_.size());
  into.append(ahead_.data(), ahead_at_);
  offset_ += ahead_at_;
  return buffered + ahead_at_;
}

void FrameScanner::take(ByteBuffer& into, size_t n) {
  if (take_some(into, n) != n) {
    fail(ErrorCode::corrupt,
         "{}: offset {}: unfinished: it ends within a frame; `logitgate recover` saves what is complete",
         name_, offset_);
  }
}

bool FrameScanner::next(StoredFrame& frame, uint64_t max_content) {
  frame.offset = offset_;
  frame.bytes.clear();
  frame.skippable = false;
  frame.content_size = 0;
  const size_t got = take_some(frame.bytes, 4);
  if (got == 0) return false;
  if (got < 4) take(frame.bytes, 4 - got);
  const uint32_t magic = ByteReader(frame.bytes).get<uint32_t>();
  if ((magic & 0xFFFFFFF0u) == kSkippableMagic) {
    frame.skippable = true;
    take(frame.bytes, 4);
    return true;
  }
  if (magic != kFrameMagic) fail_frame({name_, frame.offset}, "no zstd frame begins here");
  read_frame_header(frame, max_content);
  read_blocks(frame);
  return true;
}

void FrameScanner::read_frame_header(StoredFrame& frame, uint64_t max_content) {
  const FramePlace place{name_, frame.offset};
  take(frame.bytes, 1);
  const uint8_t descriptor = frame.bytes.data()[4];
  const bool single = (descriptor & kSingleSegmentFlag) != 0;
  const uint32_t size_code = descriptor >> 6;
  const bool sized = single || size_code != 0;
  if ((descriptor & kChecksumFlag) == 0 || (descriptor & (kReservedFlags | kDictionaryBits)) != 0 || !sized) {
    fail_frame(place, "the frame has no content size or no checksum: logitgate did not write it");
  }
  const size_t size_bytes = size_t{1} << size_code;  // 1 byte with code 0
  const size_t window_bytes = single ? 0 : 1;
  take(frame.bytes, window_bytes + size_bytes);
  uint64_t size = 0;
  std::memcpy(&size, frame.bytes.data() + 5 + window_bytes, size_bytes);
  frame.content_size = size_code == 1 ? size + 256 : size;
  if (frame.content_size > max_content) {
    fail_frame(place, fmt::format("the frame declares {} bytes, and at most {} are possible here",
                                  frame.content_size, max_content));
  }
}

void FrameScanner::read_blocks(StoredFrame& frame) {
  const uint64_t limit = max_stored(frame.content_size);
  frame.bytes.reserve(limit);  // content_size was bounded, and memory is touched only as bytes arrive
  for (bool last = false; !last;) {
    const size_t at = frame.bytes.size();
    take(frame.bytes, 3);
    const uint32_t header = read_u24(frame.bytes.data() + at);
    last = (header & 1) != 0;
    const uint32_t type = (header >> 1) & 3;
    const size_t size = header >> 3;
    const bool valid = type <= kCompressed && size <= kMaxBlock;
    const size_t stored = type == kRle ? 1 : size;
    if (!valid || frame.bytes.size() + stored > limit) {
      fail_frame({name_, frame.offset}, "damaged: a block of the frame is too large, or of no known type");
    }
    take(frame.bytes, stored);
  }
  take(frame.bytes, kChecksumBytes);
}

}  // namespace logitgate
