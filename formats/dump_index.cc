// Reads seek tables from the back of the file to its front, and the index frames they lead to.
// Contract: see dump_index.h.
#include "formats/dump_index.h"

#include <algorithm>

#include "formats/frame_scanner.h"
#include "formats/stream_hash.h"
#include "lib/error.h"

namespace logitgate {

namespace {

constexpr size_t kSkippableHeaderBytes = 8;
constexpr uint64_t kMaxIndexPayload = 8 + uint64_t{kIndexFrameRecords} * 12;

}  // namespace

DumpIndex::DumpIndex(const InputFile& input) : input_(input) {
  std::vector<Segment> segments;
  for (uint64_t end = input.size(); end > 0; end = segments.back().begin)
    segments.push_back(find_segment(end));
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) read_segment(*segment);
  std::sort(records_.begin(), records_.end(), [](const Record& a, const Record& b) {
    return a.id_hash != b.id_hash ? a.id_hash < b.id_hash : a.offset < b.offset;
  });
}

std::vector<uint64_t> DumpIndex::candidates(std::string_view id) const {
  const uint64_t hash = hash_id(id);
  auto at = std::lower_bound(records_.begin(), records_.end(), hash,
                             [](const Record& record, uint64_t wanted) { return record.id_hash < wanted; });
  std::vector<uint64_t> offsets;
  for (; at != records_.end() && at->id_hash == hash; ++at) offsets.push_back(at->offset);
  return offsets;
}

// f(stored, content) for entries of the seek table, read in pieces.
template <class F>
void DumpIndex::for_each_entry(const Segment& segment, uint32_t first, uint32_t count, F f) const {
  constexpr uint32_t kPiece = 8192;
  std::vector<uint32_t> piece(size_t{2} * std::min(count, kPiece));
  for (uint32_t done = 0; done < count;) {
    const uint32_t n = std::min(count - done, kPiece);
    const uint64_t at = segment.table + uint64_t{first + done} * kSeekEntryBytes;
    if (input_.read_at(at, piece.data(), n * kSeekEntryBytes) != n * kSeekEntryBytes) {
      fail_frame({input_.name(), at}, "seek table: the file ends within it");
    }
    for (uint32_t i = 0; i < n; ++i) f(piece[size_t{2} * i], piece[size_t{2} * i + 1]);
    done += n;
  }
}

DumpIndex::Segment DumpIndex::find_segment(uint64_t end) const {
  const FramePlace place{input_.name(), end};
  const char* unfinished = "unfinished: there is no seek table before this";
  uint8_t footer[kSeekFooterBytes];
  if (end < kSeekFooterBytes + kSkippableHeaderBytes) fail_frame(place, unfinished);
  input_.read_at(end - kSeekFooterBytes, footer, kSeekFooterBytes);
  ByteReader reader(ByteSpan(footer, kSeekFooterBytes));
  Segment segment;
  segment.n_frames = reader.get<uint32_t>();
  const uint8_t descriptor = reader.get<uint8_t>();
  if (reader.get<uint32_t>() != kSeekFooterMagic || descriptor != 0) fail_frame(place, unfinished);
  const uint64_t table_bytes = uint64_t{segment.n_frames} * kSeekEntryBytes + kSeekFooterBytes;
  const bool fits =
      segment.n_frames >= 2 && segment.n_frames < kMaxFrames && table_bytes + kSkippableHeaderBytes <= end;
  if (!fits) fail_frame(place, "seek table: its size does not fit the file");
  segment.table = end - table_bytes;
  uint32_t head[2] = {};
  input_.read_at(segment.table - kSkippableHeaderBytes, head, sizeof head);
  if (head[0] != kSeekTableMagic || head[1] != table_bytes) fail_frame(place, unfinished);
  uint64_t stored = 0;
  for_each_entry(segment, 0, segment.n_frames, [&](uint32_t n, uint32_t) { stored += n; });
  if (stored > segment.table - kSkippableHeaderBytes) {
    fail_frame(place, "seek table: its frames are larger than the file");
  }
  segment.begin = segment.table - kSkippableHeaderBytes - stored;
  return segment;
}

ByteBuffer DumpIndex::read_frame(uint64_t offset, uint64_t stored, uint64_t max_content) {
  uint64_t at = offset;
  FrameScanner scanner(input_.name(), [&](void* data, size_t n) {
    const size_t got = input_.read_at(at, data, n);
    at += got;
    return got;
  });
  scanner.moved_to(offset);
  StoredFrame frame;
  const FramePlace place{input_.name(), offset};
  if (!scanner.next(frame, max_content) || frame.skippable || frame.bytes.size() != stored) {
    fail_frame(place, "the seek table leads to something that is no frame of its size");
  }
  ByteBuffer payload;
  decoder_.decode(place, frame.bytes, frame.content_size, payload);
  return payload;
}

void DumpIndex::read_segment(const Segment& segment) {
  const uint32_t before_end = segment.n_frames - 1;
  uint64_t end_stored = 0;
  uint64_t end_content = 0;
  uint64_t end_offset = segment.begin;
  uint64_t first_stored = 0;
  StreamHash seek_hash;
  uint32_t number = 0;
  for_each_entry(segment, 0, segment.n_frames, [&](uint32_t stored, uint32_t content) {
    const uint32_t entry[2] = {stored, content};
    if (number == 0) first_stored = stored;
    if (number < before_end) {
      end_offset += stored;
      seek_hash.update(entry, sizeof entry);
    } else {
      end_stored = stored;
      end_content = content;
    }
    ++number;
  });
  const FramePlace place{input_.name(), end_offset};
  const EndPayload end = parse_end_payload(place, read_frame(end_offset, end_stored, kEndBytes));
  const uint64_t index_frames = (end.n_records + kIndexFrameRecords - 1) / kIndexFrameRecords;
  const bool fits = end_content == kEndBytes && end.n_frames == before_end && end.n_records < before_end &&
                    end.n_index_frames == index_frames && end.n_records + index_frames < before_end &&
                    end.seek_digest == seek_hash.digest();
  if (!fits) fail_frame(place, "end frame: differs from the seek table");
  const FramePlace header_place{input_.name(), segment.begin};
  headers_.push_back(
      parse_header_payload(header_place, read_frame(segment.begin, first_stored, kMaxHeaderBytes)));
  const size_t first_record = records_.size();
  records_.reserve(first_record + end.n_records);
  const uint32_t first_index = before_end - end.n_index_frames;
  read_index_frames(segment, first_index, end_offset, end);
  place_records(segment, end, first_record);
}

void DumpIndex::read_index_frames(const Segment& segment, uint32_t first, uint64_t offset,
                                  const EndPayload& end) {
  std::vector<uint32_t> sizes;
  for_each_entry(segment, first, end.n_index_frames, [&](uint32_t stored, uint32_t) {
    sizes.push_back(stored);
    offset -= stored;
  });
  uint64_t left = end.n_records;
  for (const uint32_t stored : sizes) {
    const FramePlace place{input_.name(), offset};
    const ByteBuffer payload = read_frame(offset, stored, kMaxIndexPayload);
    ByteReader reader(payload);
    const uint32_t tag = reader.get<uint32_t>();
    const uint32_t count = reader.get<uint32_t>();
    if (tag != kIndexTag || count > left || reader.left() != size_t{count} * 12) {
      fail_frame(place, "index: is not as the end frame tells");
    }
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t id_hash = reader.get<uint64_t>();
      records_.push_back({id_hash, reader.get<uint32_t>()});
    }
    left -= count;
    offset += stored;
  }
  if (left != 0) fail_frame({input_.name(), offset}, "index: has fewer records than the end frame tells");
}

void DumpIndex::place_records(const Segment& segment, const EndPayload& end, size_t first_record) {
  size_t next = first_record;
  uint64_t offset = segment.begin;
  uint32_t number = 0;
  for_each_entry(segment, 0, end.n_frames, [&](uint32_t stored, uint32_t) {
    if (next < records_.size() && records_[next].offset == number) records_[next++].offset = offset;
    offset += stored;
    ++number;
  });
  if (next != records_.size())
    fail_frame({input_.name(), offset}, "index: its records are not in the order of frames");
}

}  // namespace logitgate
