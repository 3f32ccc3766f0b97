// Finds records by id in a dump that is a file, from its seek tables and index frames, without reading
// blocks. Contract: all segments, from the back; 16 bytes a record. What does not fit the file is
// Error{corrupt}.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "formats/dump_format.h"
#include "formats/dump_frames.h"
#include "formats/input_file.h"

namespace logitgate {

class DumpIndex {
 public:
  explicit DumpIndex(const InputFile& input);
  uint64_t n_records() const { return records_.size(); }
  const std::vector<DumpHeader>& headers() const { return headers_; }  // of the segments, in file order
  // Offsets of the record frames whose id may be this one: the caller looks at each.
  std::vector<uint64_t> candidates(std::string_view id) const;

 private:
  struct Segment {
    uint64_t begin = 0;
    uint64_t table = 0;  // where the seek table's first entry is
    uint32_t n_frames = 0;
  };
  struct Record {
    uint64_t id_hash;
    uint64_t offset;  // while a segment is read: number of the frame
  };
  Segment find_segment(uint64_t end) const;
  void read_segment(const Segment& segment);
  void read_index_frames(const Segment& segment, uint32_t first, uint64_t offset, const EndPayload& end);
  void place_records(const Segment& segment, const EndPayload& end, size_t first_record);
  ByteBuffer read_frame(uint64_t offset, uint64_t stored, uint64_t max_content);
  template <class F>
  void for_each_entry(const Segment& segment, uint32_t first, uint32_t count, F f) const;

  const InputFile& input_;
  FrameDecoder decoder_;
  std::vector<Record> records_;
  std::vector<DumpHeader> headers_;
};

}  // namespace logitgate
