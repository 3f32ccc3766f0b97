// The walk over a dump: segments of header, records with their blocks, index frames, end frame and seek
// table. Contract: see dump_walker.h.
#include "formats/dump_walker.h"

#include <xxhash.h>

#include <algorithm>

#include "formats/block_codec.h"
#include "lib/error.h"

namespace logitgate {

DumpWalker::DumpWalker(std::string name, FrameScanner::Source source, bool allow_mixed)
    : scanner_(std::move(name), std::move(source)), allow_mixed_(allow_mixed) {}

void DumpWalker::fail_unfinished() const {
  fail(ErrorCode::corrupt,
       "{}: offset {}: unfinished: it ends within record {} or before the end frame; `logitgate recover` "
       "saves what is "
       "complete",
       scanner_.name(), scanner_.offset(), n_records_);
}

// Reads one frame and decodes it unless it is skippable; false at the end of the file.
bool DumpWalker::scan(uint64_t max_content) {
  if (!scanner_.next(frame_, max_content)) return false;
  if (!frame_.skippable) decoder_.decode(place(), frame_.bytes, frame_.content_size, payload_);
  return true;
}

void DumpWalker::note_frame() {
  const uint32_t entry[2] = {static_cast<uint32_t>(frame_.bytes.size()),
                             static_cast<uint32_t>(frame_.content_size)};
  stored_hash_.update(frame_.bytes.data(), frame_.bytes.size());
  seek_hash_.update(entry, sizeof entry);
  if (++n_frames_ >= kMaxFrames)
    fail_frame(place(), "the segment has more frames than a seek table can hold");
}

DumpWalker::Item DumpWalker::next() {
  if (!in_segment_) return begin_segment();
  if (!record_complete()) return next_in_record();
  if (!scan(max_record_payload())) fail_unfinished();
  if (frame_.skippable) fail_frame(place(), "a skippable frame stands where a record or the end must be");
  switch (payload_tag(payload_)) {
    case kRecordTag:
      return begin_record();
    case kIndexTag:
      return read_index();
    case kEndTag:
      return end_segment();
    default:
      fail_frame(place(), "is neither record, index nor end frame, where one must be");
  }
}

DumpWalker::Item DumpWalker::begin_segment() {
  if (!scan(kMaxHeaderBytes)) {
    if (n_segments_ > 0) return Item::done;
    fail(ErrorCode::corrupt, "{}: is empty; a dump has a header at least", scanner_.name());
  }
  if (frame_.skippable) fail_frame(place(), "a skippable frame stands where a header must be");
  header_ = parse_header_payload(place(), payload_);
  if (!first_header_) first_header_ = header_;
  const std::string difference = segment_difference(header_, *first_header_, allow_mixed_);
  if (!difference.empty())
    fail(ErrorCode::incomparable, "{}: offset {}: {}", scanner_.name(), frame_.offset, difference);
  rows_per_block_ = rows_per_block(header_.store, header_.n_vocab);
  in_segment_ = true;
  record_ = {};
  rows_seen_ = 0;
  last_index_.reset();
  segment_records_ = segment_rows_ = indexed_ = 0;
  n_frames_ = n_index_frames_ = 0;
  for (StreamHash* hash : {&stored_hash_, &seek_hash_, &records_hash_, &index_hash_}) hash->reset();
  ++n_segments_;
  note_frame();
  return Item::header;
}

DumpWalker::Item DumpWalker::next_in_record() {
  const uint32_t left = static_cast<uint32_t>(record_.positions.size() - rows_seen_);
  block_ = {record_.index, static_cast<uint32_t>(rows_seen_), std::min(left, rows_per_block_)};
  const uint64_t content = block_payload_bytes(header_.store, header_.n_vocab, block_.n_rows);
  if (!scanner_.next(frame_, content)) fail_unfinished();
  if (frame_.skippable) fail_frame(place(), "a skippable frame stands where a block must be");
  note_frame();
  rows_seen_ += block_.n_rows;
  return Item::block;
}

DumpWalker::Item DumpWalker::begin_record() {
  if (n_index_frames_ > 0) fail_frame(place(), "a record follows the index");
  record_ = parse_record_payload(place(), payload_);
  rows_seen_ = 0;
  if (last_index_ && record_.index <= *last_index_) {
    fail_frame(place(), fmt::format("record {} has index {}, after index {}: they must rise", record_.id,
                                    record_.index, *last_index_));
  }
  if (!ids_.insert(record_.id)) fail_frame(place(), fmt::format("record id \"{}\" comes twice", record_.id));
  last_index_ = record_.index;
  ByteBuffer entry;
  append_index_entry(entry, {hash_id(record_.id), n_frames_});
  records_hash_.update(entry.data(), entry.size());
  note_frame();
  ++segment_records_;
  ++n_records_;
  segment_rows_ += record_.positions.size();
  n_rows_ += record_.positions.size();
  return Item::record;
}

DumpWalker::Item DumpWalker::read_index() {
  ByteReader reader(payload_);
  reader.get<uint32_t>();
  const uint32_t count = reader.get<uint32_t>();
  const uint64_t expected = std::min<uint64_t>(segment_records_ - indexed_, kIndexFrameRecords);
  const size_t bytes = size_t{count} * 12;
  if (!reader.ok() || count != expected || count == 0 || reader.left() != bytes) {
    fail_frame(place(), fmt::format("index: holds {} entries, and {} must follow here", count, expected));
  }
  index_hash_.update(reader.take(bytes).data(), bytes);
  indexed_ += count;
  ++n_index_frames_;
  note_frame();
  return Item::index;
}

DumpWalker::Item DumpWalker::end_segment() {
  const EndPayload end = parse_end_payload(place(), payload_);
  // No digest covers this frame: it must be, byte for byte, what its content makes it.
  const ByteBuffer exact = make_stored_frame(payload_);
  if (!std::ranges::equal(exact.span(), frame_.bytes.span())) fail_frame(place(), "end frame: damaged");
  const bool counts = end.n_records == segment_records_ && indexed_ == segment_records_ &&
                      end.n_rows == segment_rows_ && end.n_frames == n_frames_ &&
                      end.n_index_frames == n_index_frames_;
  if (!counts) fail_frame(place(), "end frame: counts other records, rows or frames than there are");
  if (end.shard_index != header_.shard_index || end.shard_count != header_.shard_count) {
    fail_frame(place(), "end frame: names another shard than the header");
  }
  if (index_hash_.digest() != records_hash_.digest())
    fail_frame(place(), "index: is not that of the records");
  if (end.frames_digest != stored_hash_.digest())
    fail_frame(place(), "end frame: the digest of the frames differs");
  if (end.seek_digest != seek_hash_.digest())
    fail_frame(place(), "end frame: the digest of the seek table differs");
  note_frame();
  check_seek_table();
  in_segment_ = false;
  return Item::end;
}

void DumpWalker::check_seek_table() {
  if (!scanner_.next(frame_, 0)) fail_unfinished();
  const uint64_t table_bytes = uint64_t{n_frames_} * kSeekEntryBytes;
  ByteReader head(frame_.bytes);
  if (head.get<uint32_t>() != kSeekTableMagic || head.get<uint32_t>() != table_bytes + kSeekFooterBytes) {
    fail_frame(place(), "seek table: is missing, or of another size than the segment needs");
  }
  StreamHash hash;
  ByteBuffer piece;
  for (uint64_t left = table_bytes; left > 0;) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(left, size_t{64} << 10));
    piece.clear();
    scanner_.take(piece, n);
    hash.update(piece.data(), n);
    left -= n;
  }
  piece.clear();
  scanner_.take(piece, kSeekFooterBytes);
  ByteReader footer(piece);
  const bool valid = footer.get<uint32_t>() == n_frames_ && footer.get<uint8_t>() == 0 &&
                     footer.get<uint32_t>() == kSeekFooterMagic;
  if (!valid || hash.digest() != seek_hash_.digest())
    fail_frame(place(), "seek table: differs from the frames");
}

CompletePart find_complete_part(const std::string& name, FrameScanner::Source source) {
  CompletePart part;
  DumpWalker walker(name, std::move(source), true);
  std::optional<BlockDecoder> decoder;
  RowBlock rows;
  const auto note_complete = [&] {
    part.end_offset = walker.offset();
    part.n_records = walker.n_records();
  };
  try {
    for (;;) {
      const DumpWalker::Item item = walker.next();
      if (item == DumpWalker::Item::done) break;
      if (item == DumpWalker::Item::header) {
        part.segment_offset = walker.frame().offset;
        part.segment_header = walker.segment_header();
        decoder.emplace(walker.segment_header());
        note_complete();
      } else if (item == DumpWalker::Item::block) {
        decoder->decode(walker.place(), walker.block(), walker.frame().bytes, walker.frame().content_size,
                        rows);
      } else if (item == DumpWalker::Item::end) {
        note_complete();
        part.segment_offset = part.end_offset;
        part.segment_header.reset();
      }
      const bool of_record = item == DumpWalker::Item::record || item == DumpWalker::Item::block;
      if (of_record && walker.record_complete()) note_complete();
    }
    part.whole = true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt) throw;
    part.damage = error.message();
  }
  return part;
}

void gather_index(const std::string& name, FrameScanner::Source source, uint64_t end_offset,
                  SegmentIndex& index, const std::function<void(ByteSpan)>& frames,
                  const std::function<void(uint64_t)>& record_hash) {
  DumpWalker walker(name, std::move(source), true);
  while (walker.offset() < end_offset) {
    const DumpWalker::Item item = walker.next();
    const ByteBuffer& bytes = walker.frame().bytes;
    if (item == DumpWalker::Item::record) {
      index.begin_record(hash_id(walker.record().id),
                         static_cast<uint32_t>(walker.record().positions.size()));
      record_hash(XXH3_64bits(bytes.data(), bytes.size()));
    }
    index.add_frame(bytes, static_cast<uint32_t>(walker.frame().content_size));
    frames(bytes);
  }
}

}  // namespace logitgate
