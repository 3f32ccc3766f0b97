// Payloads of header, record, index and end frames to bytes and back.
// Contract: see dump_frames.h.
#include "formats/dump_frames.h"

#include <xxhash.h>
#include <zstd.h>

#include <new>

#include "lib/error.h"

namespace logitgate {

namespace {

constexpr int kSmallFrameLevel = 3;
constexpr size_t kRecordFixedBytes = 44;
constexpr size_t kRangeBytes = 8;

// Calls f(first, count) for every maximal run of consecutive positions.
template <class F>
void for_each_range(const std::vector<uint32_t>& positions, F f) {
  for (size_t begin = 0; begin < positions.size();) {
    size_t end = begin + 1;
    while (end < positions.size() && positions[end] == positions[end - 1] + 1) ++end;
    f(positions[begin], static_cast<uint32_t>(end - begin));
    begin = end;
  }
}

void check_record(const DumpRecord& record) {
  if (record.id.size() > kMaxIdBytes) {
    fail(ErrorCode::usage, "record {}: its id has {} bytes; a dump holds ids of at most {}", record.index,
         record.id.size(), kMaxIdBytes);
  }
  if (record.n_tokens > kMaxRecordTokens) {
    fail(ErrorCode::usage, "record {}: has {} tokens; a dump holds records of at most {}", record.id,
         record.n_tokens, kMaxRecordTokens);
  }
  for (size_t i = 0; i < record.positions.size(); ++i) {
    const bool rising = i == 0 || record.positions[i] > record.positions[i - 1];
    if (!rising || record.positions[i] >= record.n_tokens) {
      fail(ErrorCode::usage, "record {}: position {} is not above the one before, or not below its {} tokens",
           record.id, record.positions[i], record.n_tokens);
    }
  }
}

void append_ranges(const FramePlace& place, ByteReader& reader, uint32_t n_ranges, uint32_t n_rows,
                   DumpRecord& record) {
  record.positions.reserve(n_rows);
  uint64_t next =
      0;  // a range begins at least one past the end of the one before, or it would be the same range
  for (uint32_t i = 0; i < n_ranges; ++i) {
    const uint64_t first = reader.get<uint32_t>();
    const uint64_t count = reader.get<uint32_t>();
    const bool valid = first >= next && count > 0 && first + count <= record.n_tokens &&
                       record.positions.size() + count <= n_rows;
    if (!valid) fail_frame(place, "record frame: positions are not ascending ranges within the record");
    for (uint64_t position = first; position < first + count; ++position) {
      record.positions.push_back(static_cast<uint32_t>(position));
    }
    next = first + count + 1;
  }
  if (record.positions.size() != n_rows)
    fail_frame(place, "record frame: the ranges do not add up to its rows");
}

}  // namespace

void fail_frame(const FramePlace& place, const std::string& what) {
  fail(ErrorCode::corrupt, "{}: offset {}: {}; `logitgate recover` saves what comes before", place.name,
       place.offset, what);
}

uint64_t hash_id(std::string_view id) { return XXH3_64bits(id.data(), id.size()); }

uint64_t max_record_payload() {
  return kRecordFixedBytes + kMaxIdBytes + uint64_t{kRangeBytes} * (kMaxRecordTokens / 2 + 1);
}

uint64_t block_payload_bytes(StoreSpec store, uint32_t n_vocab, uint32_t n_rows) {
  return kBlockHeaderBytes + stored_row_bytes(store, n_vocab) * n_rows;
}

ByteBuffer make_record_payload(const DumpRecord& record) {
  check_record(record);
  uint32_t n_ranges = 0;
  for_each_range(record.positions, [&](uint32_t, uint32_t) { ++n_ranges; });
  ByteBuffer payload;
  payload.put(kRecordTag);
  payload.put(record.index);
  payload.put(record.n_tokens);
  payload.put(static_cast<uint32_t>(record.positions.size()));
  payload.put(record.tokens_digest);
  payload.put(n_ranges);
  payload.put(static_cast<uint32_t>(record.id.size()));
  for_each_range(record.positions, [&](uint32_t first, uint32_t count) {
    payload.put(first);
    payload.put(count);
  });
  payload.append(record.id);
  return payload;
}

DumpRecord parse_record_payload(const FramePlace& place, ByteSpan payload) {
  ByteReader reader(payload);
  DumpRecord record;
  if (reader.get<uint32_t>() != kRecordTag) fail_frame(place, "is not a record frame, where one must be");
  record.index = reader.get<uint64_t>();
  record.n_tokens = reader.get<uint32_t>();
  const uint32_t n_rows = reader.get<uint32_t>();
  record.tokens_digest = reader.get<Digest128>();
  const uint32_t n_ranges = reader.get<uint32_t>();
  const uint32_t id_bytes = reader.get<uint32_t>();
  const bool valid = reader.ok() && record.n_tokens <= kMaxRecordTokens && n_rows <= record.n_tokens &&
                     n_ranges <= n_rows && id_bytes <= kMaxIdBytes &&
                     reader.left() == uint64_t{n_ranges} * kRangeBytes + id_bytes;
  if (!valid) fail_frame(place, "record frame: its sizes do not fit together");
  append_ranges(place, reader, n_ranges, n_rows, record);
  record.id = reader.text(id_bytes);
  return record;
}

ByteBuffer make_end_payload(const EndPayload& end) {
  ByteBuffer payload;
  payload.put(kEndTag);
  payload.put(end.n_records);
  payload.put(end.n_rows);
  payload.put(end.shard_index);
  payload.put(end.shard_count);
  payload.put(end.n_index_frames);
  payload.put(end.n_frames);
  payload.put(end.frames_digest);
  payload.put(end.seek_digest);
  return payload;
}

EndPayload parse_end_payload(const FramePlace& place, ByteSpan payload) {
  ByteReader reader(payload);
  EndPayload end;
  if (reader.get<uint32_t>() != kEndTag) fail_frame(place, "is not an end frame, where one must be");
  end.n_records = reader.get<uint64_t>();
  end.n_rows = reader.get<uint64_t>();
  end.shard_index = reader.get<uint64_t>();
  end.shard_count = reader.get<uint64_t>();
  end.n_index_frames = reader.get<uint32_t>();
  end.n_frames = reader.get<uint32_t>();
  end.frames_digest = reader.get<uint64_t>();
  end.seek_digest = reader.get<uint64_t>();
  if (!reader.done()) fail_frame(place, "end frame: is not of the right size");
  return end;
}

void append_index_entry(ByteBuffer& payload, const IndexEntry& entry) {
  payload.put(entry.id_hash);
  payload.put(entry.frame);
}

uint32_t payload_tag(ByteSpan payload) { return ByteReader(payload).get<uint32_t>(); }

ByteBuffer make_frame(ByteSpan payload) {
  // One context a thread: making one takes longer than coding a record frame.
  struct Free {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  };
  thread_local const std::unique_ptr<ZSTD_CCtx, Free> context(ZSTD_createCCtx());
  if (context == nullptr) throw std::bad_alloc();
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kSmallFrameLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  ByteBuffer frame;
  frame.resize(ZSTD_compressBound(payload.size()));
  const size_t size =
      ZSTD_compress2(context.get(), frame.data(), frame.size(), payload.data(), payload.size());
  if (ZSTD_isError(size)) fail(ErrorCode::resource, "zstd: {}", ZSTD_getErrorName(size));
  frame.resize(size);
  return frame;
}

ByteBuffer make_stored_frame(ByteSpan payload) {
  const uint32_t size = static_cast<uint32_t>(payload.size());
  const uint32_t last_raw_block = size << 3 | 1;
  ByteBuffer frame;
  frame.put(uint32_t{0xFD2FB528});
  frame.put(uint8_t{0xA4});  // single segment, four bytes of content size, checksum
  frame.put(size);
  frame.append(&last_raw_block, 3);
  frame.append(payload.data(), payload.size());
  frame.put(static_cast<uint32_t>(XXH64(payload.data(), payload.size(), 0)));
  return frame;
}

FrameDecoder::FrameDecoder() : context_(ZSTD_createDCtx()) {
  if (context_ == nullptr) throw std::bad_alloc();
}

FrameDecoder::~FrameDecoder() { ZSTD_freeDCtx(context_); }

void FrameDecoder::decode(const FramePlace& place, ByteSpan frame, uint64_t content_size,
                          ByteBuffer& payload) {
  payload.resize(content_size);
  const size_t size = ZSTD_decompressDCtx(context_, payload.data(), content_size, frame.data(), frame.size());
  if (ZSTD_isError(size)) fail_frame(place, fmt::format("damaged: {}", ZSTD_getErrorName(size)));
  if (size != content_size) fail_frame(place, "damaged: the frame does not hold what its header declares");
}

}  // namespace logitgate
