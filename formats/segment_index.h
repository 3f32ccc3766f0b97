// What a segment's index, end frame and seek table need to know of the frames before them, gathered as frames
// go out. Contract: 12 bytes a record and 8 a frame; the bytes written depend on the frames alone.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "formats/byte_buffer.h"
#include "formats/dump_format.h"
#include "formats/dump_frames.h"
#include "formats/stream_hash.h"

namespace logitgate {

class SegmentIndex {
 public:
  // A frame of this many stored bytes and content bytes; Error{io} when the segment has as many as the format
  // can hold.
  void add_frame(ByteSpan stored, uint32_t content_size);
  // The next frame to be added is the record frame of this id.
  void begin_record(uint64_t id_hash, uint32_t n_rows);
  uint64_t n_records() const { return records_.size(); }
  uint64_t n_rows() const { return n_rows_; }

  // Index frames, end frame and seek table, in pieces.
  void finish(const DumpHeader& header, const std::function<void(ByteSpan)>& write);

 private:
  struct Entry {
    uint32_t stored;
    uint32_t content;
  };
  struct Record {
    uint32_t hash_low;
    uint32_t hash_high;
    uint32_t frame;
  };
  void write_seek_table(const std::function<void(ByteSpan)>& write) const;

  std::deque<Entry> frames_;
  std::deque<Record> records_;
  uint64_t n_rows_ = 0;
  StreamHash stored_hash_;
  StreamHash seek_hash_;
};

}  // namespace logitgate
