// Index frames, end frame and seek table of a segment.
// Contract: see segment_index.h.
#include "formats/segment_index.h"

#include <algorithm>

#include "lib/error.h"

namespace logitgate {

void SegmentIndex::add_frame(ByteSpan stored, uint32_t content_size) {
  if (frames_.size() + 1 >= kMaxFrames) {
    fail(ErrorCode::io,
         "dump: has {} blocks and records, as many as the format holds; split the input with --shard",
         frames_.size());
  }
  const Entry entry{static_cast<uint32_t>(stored.size()), content_size};
  frames_.push_back(entry);
  stored_hash_.update(stored.data(), stored.size());
  seek_hash_.update(&entry, sizeof entry);
}

void SegmentIndex::begin_record(uint64_t id_hash, uint32_t n_rows) {
  records_.push_back({static_cast<uint32_t>(id_hash), static_cast<uint32_t>(id_hash >> 32),
                      static_cast<uint32_t>(frames_.size())});
  n_rows_ += n_rows;
}

void SegmentIndex::finish(const DumpHeader& header, const std::function<void(ByteSpan)>& write) {
  EndPayload end;
  for (size_t begin = 0; begin < records_.size(); begin += kIndexFrameRecords) {
    const size_t count = std::min<size_t>(records_.size() - begin, kIndexFrameRecords);
    ByteBuffer payload;
    payload.put(kIndexTag);
    payload.put(static_cast<uint32_t>(count));
    for (size_t i = begin; i < begin + count; ++i) {
      append_index_entry(payload,
                         {uint64_t{records_[i].hash_high} << 32 | records_[i].hash_low, records_[i].frame});
    }
    const ByteBuffer frame = make_frame(payload);
    add_frame(frame, static_cast<uint32_t>(payload.size()));
    write(frame);
    ++end.n_index_frames;
  }
  end.n_records = records_.size();
  end.n_rows = n_rows_;
  end.shard_index = header.shard_index;
  end.shard_count = header.shard_count;
  end.n_frames = static_cast<uint32_t>(frames_.size());
  end.frames_digest = stored_hash_.digest();
  end.seek_digest = seek_hash_.digest();
  const ByteBuffer payload = make_end_payload(end);
  const ByteBuffer frame = make_stored_frame(payload);
  add_frame(frame, static_cast<uint32_t>(payload.size()));
  write(frame);
  write_seek_table(write);
}

void SegmentIndex::write_seek_table(const std::function<void(ByteSpan)>& write) const {
  constexpr size_t kPiece = size_t{64} << 10;
  ByteBuffer bytes;
  bytes.put(kSeekTableMagic);
  bytes.put(static_cast<uint32_t>(frames_.size() * kSeekEntryBytes + kSeekFooterBytes));
  for (const Entry& entry : frames_) {
    bytes.put(entry.stored);
    bytes.put(entry.content);
    if (bytes.size() < kPiece) continue;
    write(bytes);
    bytes.clear();
  }
  bytes.put(static_cast<uint32_t>(frames_.size()));
  bytes.put(uint8_t{0});  // descriptor: no checksums in the entries
  bytes.put(kSeekFooterMagic);
  write(bytes);
}

}  // namespace logitgate
