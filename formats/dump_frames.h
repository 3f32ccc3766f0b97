// The payloads of a dump's frames, and the standard zstd frames that carry them.
// Contract: byte layouts are those of dump_format.md. Parsers check every field and throw Error{corrupt}
// naming file and offset of the frame; nothing is allocated before the size it needs was bounded.
#pragma once

#include <cstdint>
#include <string>

#include "formats/byte_buffer.h"
#include "formats/dump_format.h"

struct ZSTD_DCtx_s;

namespace logitgate {

constexpr uint32_t frame_tag(const char (&text)[5]) {
  return static_cast<uint32_t>(static_cast<uint8_t>(text[0])) |
         static_cast<uint32_t>(static_cast<uint8_t>(text[1])) << 8 |
         static_cast<uint32_t>(static_cast<uint8_t>(text[2])) << 16 |
         static_cast<uint32_t>(static_cast<uint8_t>(text[3])) << 24;
}
constexpr uint32_t kHeaderTag = frame_tag("LGHD");
constexpr uint32_t kRecordTag = frame_tag("LGRC");
constexpr uint32_t kBlockTag = frame_tag("LGBK");
constexpr uint32_t kIndexTag = frame_tag("LGIX");
constexpr uint32_t kEndTag = frame_tag("LGEN");

constexpr uint32_t kSeekTableMagic = 0x184D2A5E;
constexpr uint32_t kSeekFooterMagic = 0x8F92EAB1;
constexpr size_t kSeekFooterBytes = 9;
constexpr size_t kSeekEntryBytes = 8;
constexpr uint64_t kMaxFrames = 0x8000000;  // of zstd's seekable format, in a segment
constexpr uint32_t kIndexFrameRecords = uint32_t{1} << 16;
constexpr size_t kBlockHeaderBytes = 24;
constexpr size_t kEndBytes = 60;

// Where a frame was found, for messages.
struct FramePlace {
  const std::string& name;
  uint64_t offset;
};
[[noreturn]] void fail_frame(const FramePlace& place, const std::string& what);

struct BlockKey {
  uint64_t record_index = 0;
  uint32_t first_row = 0;
  uint32_t n_rows = 0;
};

struct IndexEntry {
  uint64_t id_hash = 0;  // XXH3-64 of the id
  uint32_t frame = 0;    // number of the record frame in its segment
};

struct EndPayload {
  uint64_t n_records = 0;
  uint64_t n_rows = 0;
  uint64_t shard_index = 0;
  uint64_t shard_count = 1;
  uint32_t n_index_frames = 0;
  uint32_t n_frames = 0;       // before the end frame
  uint64_t frames_digest = 0;  // XXH3-64 of the stored bytes of those frames
  uint64_t seek_digest = 0;    // XXH3-64 of their seek table entries
};

uint64_t hash_id(std::string_view id);

// Largest payloads, for bounding frames before they are read.
uint64_t max_record_payload();
uint64_t block_payload_bytes(StoreSpec store, uint32_t n_vocab, uint32_t n_rows);

ByteBuffer make_header_payload(const DumpHeader& header);
DumpHeader parse_header_payload(const FramePlace& place, ByteSpan payload);
ByteBuffer make_record_payload(const DumpRecord& record);  // Error{usage} for a record outside the limits
DumpRecord parse_record_payload(const FramePlace& place, ByteSpan payload);
ByteBuffer make_end_payload(const EndPayload& end);
EndPayload parse_end_payload(const FramePlace& place, ByteSpan payload);
// Index frames: count entries follow the tag and the count.
void append_index_entry(ByteBuffer& payload, const IndexEntry& entry);

uint32_t payload_tag(ByteSpan payload);  // 0 if there are fewer than four bytes

// A plain frame: content size and checksum, made by libzstd. Small frames alone; blocks are coded by
// BlockEncoder.
ByteBuffer make_frame(ByteSpan payload);
// The same with the payload stored, so that every bit of the frame matters: the end frame, which no digest covers.
ByteBuffer make_stored_frame(ByteSpan payload);

// Decodes frames; holds a zstd context, for one thread.
class FrameDecoder {
 public:
  FrameDecoder();
  ~FrameDecoder();
  FrameDecoder(const FrameDecoder&) = delete;
  FrameDecoder& operator=(const FrameDecoder&) = delete;
  // content_size: as the frame's header declares it, bounded by the caller. The checksum is verified.
  void decode(const FramePlace& place, ByteSpan frame, uint64_t content_size, ByteBuffer& payload);

 private:
  ZSTD_DCtx_s* context_;
};

}  // namespace logitgate
