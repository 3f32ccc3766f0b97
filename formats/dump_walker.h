// Walks a dump's frames in order and checks everything about them but the inside of blocks.
// Contract: order of frames, headers that agree, rising indices, ids that are unique, counts, index, digests
// and seek table are verified; the first thing wrong is Error{corrupt} (Error{incomparable} for headers that
// do not agree) with file and offset.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "formats/digest_set.h"
#include "formats/dump_format.h"
#include "formats/dump_frames.h"
#include "formats/frame_scanner.h"
#include "formats/output_file.h"
#include "formats/segment_index.h"

namespace logitgate {

class DumpWalker {
 public:
  enum class Item { header, record, block, index, end, done };

  DumpWalker(std::string name, FrameScanner::Source source, bool allow_mixed = false);

  // end: the end frame and its seek table were read and agree with the segment. done: the dump ends after
  // whole segments.
  Item next();

  const DumpHeader& header() const { return *first_header_; }   // of the first segment
  const DumpHeader& segment_header() const { return header_; }  // of this segment
  const DumpRecord& record() const { return record_; }
  const BlockKey& block() const { return block_; }
  StoredFrame& frame() { return frame_; }
  FramePlace place() const { return {scanner_.name(), frame_.offset}; }
  bool record_complete() const { return rows_seen_ == record_.positions.size(); }  // after a record or block
  uint64_t offset() const { return scanner_.offset(); }
  uint64_t n_segments() const { return n_segments_; }
  uint64_t n_records() const { return n_records_; }  // begun, of all segments
  uint64_t n_rows() const { return n_rows_; }

 private:
  Item begin_segment();
  Item next_in_record();
  Item begin_record();
  Item read_index();
  Item end_segment();
  void check_seek_table();
  void note_frame();
  bool scan(uint64_t max_content);
  [[noreturn]] void fail_unfinished() const;

  FrameScanner scanner_;
  FrameDecoder decoder_;
  bool allow_mixed_;
  StoredFrame frame_;
  ByteBuffer payload_;
  std::optional<DumpHeader> first_header_;
  DumpHeader header_;
  DumpRecord record_;
  BlockKey block_;
  DigestSet ids_;
  uint32_t rows_per_block_ = 1;
  size_t rows_seen_ = 0;
  bool in_segment_ = false;
  // Of this segment:
  std::optional<uint64_t> last_index_;
  uint64_t segment_records_ = 0;
  uint64_t segment_rows_ = 0;
  uint64_t indexed_ = 0;  // records in index frames so far
  uint32_t n_frames_ = 0;
  uint32_t n_index_frames_ = 0;
  StreamHash stored_hash_;
  StreamHash seek_hash_;
  StreamHash records_hash_;
  StreamHash index_hash_;
  // Of all:
  uint64_t n_segments_ = 0;
  uint64_t n_records_ = 0;
  uint64_t n_rows_ = 0;
};

// How far a dump is good: every record before end_offset is complete and every byte of it verified.
struct CompletePart {
  bool whole = false;       // the dump is finished and undamaged
  std::string damage;       // what is wrong otherwise
  uint64_t n_records = 0;   // complete ones, of all segments
  uint64_t end_offset = 0;  // behind the last of them, or behind the last header or finished segment
  uint64_t segment_offset =
      0;  // where the segment that end_offset lies in begins; finished ones: equal to end_offset
  std::optional<DumpHeader> segment_header;  // of that segment, unless it is finished
};
CompletePart find_complete_part(const std::string& name, FrameScanner::Source source);

// Walks one segment again up to end_offset (relative to its beginning) and gathers its index; frames are
// handed on as stored. payload_hash, where given, is called with the XXH3-64 of each record frame's stored
// bytes.
void gather_index(const std::string& name, FrameScanner::Source source, uint64_t end_offset,
                  SegmentIndex& index, const std::function<void(ByteSpan)>& frames,
                  const std::function<void(uint64_t)>& record_hash);

}  // namespace logitgate
