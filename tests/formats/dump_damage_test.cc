// Cut, flipped, extended and hostile dumps: each is recognised, and recovered up to the damage.
// Contract: Error{corrupt} for every one of them, in bounded memory; recovered dumps hold what is complete, bit for bit.
#include <sys/resource.h>
#include <zstd.h>

#include <set>

#include "formats/dump_frames.h"
#include "formats/frame_scanner.h"
#include "tests/formats/dump_test_util.h"

namespace logitgate {
namespace {

using namespace logitgate::testing;

constexpr uint32_t kVocab = 300;

// A small dump with all that a dump can have: blocks several zstd blocks long, short records, one without rows.
struct Sample {
  TempFolder folder;
  std::vector<DumpRecord> records = {make_record(0, 900, 0, 900), make_record(1, 3, 2, 1),
                                     make_record(2, 4, 0, 0), make_record(5, 40, 0, 40)};
  std::string bytes;
  std::vector<TestRecord> expected;

  explicit Sample(uint32_t first_rows = 900) {
    records[0].positions.resize(first_rows);
    DumpWriter writer(folder / "a.zst", test_header(kVocab), {});
    for (const DumpRecord& record : records) {
      const uint64_t ticket = writer.begin_record(record);
      const uint32_t n = static_cast<uint32_t>(record.positions.size());
      const std::vector<float> rows = normal_rows(n, kVocab, static_cast<uint32_t>(record.index));
      writer.add_rows(ticket, std::span<const float>(rows), n);
    }
    writer.finish();
    bytes = file_bytes(folder / "a.zst");
    expected = read_all(folder / "a.zst");
  }
};

struct FrameInfo {
  uint64_t offset;
  uint64_t end;
  std::vector<uint64_t> block_ends;  // of the zstd blocks within
  std::string content;
};

std::vector<FrameInfo> frames_of(const std::string& bytes) {
  size_t at = 0;
  FrameScanner scanner("bytes", [&](void* data, size_t n) {
    n = std::min(n, bytes.size() - at);
    std::memcpy(data, bytes.data() + at, n);
    at += n;
    return n;
  });
  std::vector<FrameInfo> frames;
  for (StoredFrame frame; scanner.next(frame, uint64_t{1} << 27);) {
    FrameInfo info{frame.offset, scanner.offset(), {}, std::string(frame.content_size, '\0')};
    if (frame.skippable) {
      ByteBuffer rest;
      scanner.take(rest, ByteReader(frame.bytes.span().subspan(4)).get<uint32_t>());
      info.end = scanner.offset();
    } else {
      ZSTD_decompress(info.content.data(), info.content.size(), frame.bytes.data(), frame.bytes.size());
      const bool single = (frame.bytes.data()[4] & 0x20) != 0;
      const size_t code = frame.bytes.data()[4] >> 6;
      for (size_t p = 5 + (single ? 0 : 1) + (size_t{1} << code); p + 4 < frame.bytes.size();) {
        const uint32_t header = ByteReader(frame.bytes.span().subspan(p)).get<uint32_t>() & 0xFFFFFF;
        p += 3 + ((header >> 1 & 3) == 1 ? 1 : header >> 3);
        info.block_ends.push_back(frame.offset + p);
      }
    }
    frames.push_back(std::move(info));
  }
  return frames;
}

// How many records end at or before an offset.
size_t records_before(const std::vector<FrameInfo>& frames, uint64_t offset) {
  size_t complete = 0;
  for (size_t i = 0; i < frames.size(); ++i) {
    if (frames[i].content.substr(0, 4) != "LGRC") continue;
    size_t last = i;
    while (last + 1 < frames.size() && frames[last + 1].content.substr(0, 4) == "LGBK") ++last;
    if (frames[last].end <= offset) ++complete;
  }
  return complete;
}

void expect_recovered(const Sample& sample, const std::string& damaged, size_t n_records) {
  const std::string cut = sample.folder / "cut.zst";
  const std::string fixed = sample.folder / "ok.zst";
  put_file(cut, damaged);
  std::string damage;
  ASSERT_EQ(recover_dump(cut, fixed, true, &damage), n_records);
  EXPECT_FALSE(damage.empty());
  const std::vector<TestRecord> got = read_all(fixed);
  ASSERT_EQ(got.size(), n_records);
  for (size_t i = 0; i < n_records; ++i) {
    ASSERT_TRUE(got[i].record == sample.expected[i].record);
    ASSERT_TRUE(same_bits(got[i].f32, sample.expected[i].f32));
  }
  DumpReader reader(cut, {.salvage = true});
  size_t salvaged = 0;
  RowBlock block;
  for (DumpRecord record; reader.next_record(record); ++salvaged) {
    size_t rows = 0;
    while (reader.next_rows(block)) rows += block.n_rows;
    EXPECT_EQ(rows, record.positions.size());
  }
  EXPECT_EQ(salvaged, n_records);
  EXPECT_TRUE(reader.damage().has_value());
}

void expect_cut_is_recognised(const Sample& sample, const std::vector<FrameInfo>& frames, size_t cut) {
  const std::string path = sample.folder / "cut.zst";
  const std::string damaged = sample.bytes.substr(0, cut);
  put_file(path, damaged);
  const std::string message = error_of([&] { read_all(path); }, ErrorCode::corrupt);
  if (cut > 0) {
    EXPECT_NE(message.find("recover"), std::string::npos) << message;
  }
  error_of([&] { DumpReader(path, {}).n_records(); }, ErrorCode::corrupt);
  if (cut < frames[0].end) {
    error_of([&] { recover_dump(path, sample.folder / "ok.zst", true); }, ErrorCode::corrupt);
    return;
  }
  expect_recovered(sample, damaged, records_before(frames, cut));
}

TEST(DumpDamage, ACutAtEveryBlockBoundaryIsRecognisedAndRecovered) {
  const Sample sample;
  const std::vector<FrameInfo> frames = frames_of(sample.bytes);
  std::set<size_t> cuts = {0, 1, sample.bytes.size() - 1};
  for (const FrameInfo& frame : frames) {
    cuts.insert(frame.offset);
    cuts.insert(frame.block_ends.begin(), frame.block_ends.end());
  }
  EXPECT_GT(cuts.size(), 20u);
  for (const size_t cut : cuts) expect_cut_is_recognised(sample, frames, cut);
}

TEST(DumpDamage, ACutAtRandomIsRecognisedAndRecovered) {
  const Sample sample(100);
  const std::vector<FrameInfo> frames = frames_of(sample.bytes);
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) expect_cut_is_recognised(sample, frames, random() % sample.bytes.size());
}

TEST(DumpDamage, AFlipOfAnyByteIsDetected) {
  const TempFolder folder;
  DumpWriter writer(folder / "a.zst", test_header(5), {});
  for (uint64_t i = 0; i < 2; ++i) {
    const std::vector<float> rows = normal_rows(3, 5, static_cast<uint32_t>(i));
    writer.add_rows(writer.begin_record(make_record(i, 3, 0, 3)), std::span<const float>(rows), 3);
  }
  writer.finish();
  const std::string bytes = file_bytes(folder / "a.zst");
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int flip : {1 << (at % 8), 0x80}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      put_file(folder / "b.zst", damaged);
      try {
        read_all(folder / "b.zst");
        ADD_FAILURE() << "byte " << at << " of " << bytes.size() << " flipped by " << flip;
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported)
            << error.message();
      }
    }
  }
}

TEST(DumpDamage, AFlipInABlockLosesThatRecordAndWhatFollows) {
  const Sample sample(100);
  const std::vector<FrameInfo> frames = frames_of(sample.bytes);
  std::mt19937 random(12);
  for (const FrameInfo& frame : frames) {
    if (frame.offset == 0) continue;
    std::string damaged = sample.bytes;
    const size_t at = frame.offset + random() % (frame.end - frame.offset);
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    expect_recovered(sample, damaged, records_before(frames, frame.offset));
  }
}

TEST(DumpDamage, TrailingBytesAreRecognised) {
  const Sample sample(100);
  for (const std::string& garbage : {std::string("x"), std::string(9, '\0'), std::string(100000, 'z'),
                                     sample.bytes.substr(0, 100), sample.bytes.substr(30)}) {
    put_file(sample.folder / "b.zst", sample.bytes + garbage);
    error_of([&] { read_all(sample.folder / "b.zst"); }, ErrorCode::corrupt);
    error_of([&] { DumpReader(sample.folder / "b.zst", {}).n_records(); }, ErrorCode::corrupt);
  }
}

TEST(DumpDamage, FramesThatAreMissingDoubledOrSwappedAreRecognised) {
  const Sample sample(100);
  const std::vector<FrameInfo> frames = frames_of(sample.bytes);
  const auto frame = [&](size_t i) {
    return sample.bytes.substr(frames[i].offset, frames[i].end - frames[i].offset);
  };
  for (size_t changed = 0; changed < frames.size(); ++changed) {
    std::string missing, doubled, swapped;
    for (size_t i = 0; i < frames.size(); ++i) {
      if (i != changed) missing += frame(i);
      doubled += i == changed ? frame(i) + frame(i) : frame(i);
      swapped += i == changed && i + 1 < frames.size() ? frame(i + 1)
                 : i == changed + 1                    ? frame(changed)
                                                       : frame(i);
    }
    for (const std::string& damaged : {missing, doubled, swapped}) {
      if (damaged == sample.bytes) continue;
      put_file(sample.folder / "b.zst", damaged);
      error_of([&] { read_all(sample.folder / "b.zst"); }, ErrorCode::corrupt);
    }
  }
}

// A frame of zstd's own making with the given content.
std::string frame_with(const std::string& content) {
  const ByteBuffer frame = make_frame({reinterpret_cast<const uint8_t*>(content.data()), content.size()});
  return std::string(reinterpret_cast<const char*>(frame.data()), frame.size());
}

std::string header_frame(const std::string& replaced = "", const std::string& by = "") {
  const ByteBuffer payload = make_header_payload(test_header(1000));
  std::string text(reinterpret_cast<const char*>(payload.data()), payload.size());
  if (!replaced.empty()) text.replace(text.find(replaced), replaced.size(), by);
  return frame_with(text);
}

void expect_refused(const std::string& bytes, ErrorCode code = ErrorCode::corrupt) {
  const TempFolder folder;
  put_file(folder / "hostile.zst", bytes);
  error_of([&] { read_all(folder / "hostile.zst"); }, code);
}

TEST(DumpDamage, HostileHeadersAreRefused) {
  expect_refused("");
  expect_refused("{\"id\": \"p0\"}");
  expect_refused(frame_with("LGHD"));
  expect_refused(frame_with("LGHD[1, 2]"));
  expect_refused(frame_with("LGHD" + std::string(500000, '[')));
  expect_refused(frame_with("LGHD{\"format\": \"logitgate-dump\", \"version\": 1}"));
  expect_refused(frame_with("another file that zstd compressed"));
  expect_refused(header_frame("\"version\":1", "\"version\":2"), ErrorCode::unsupported);
  expect_refused(header_frame("\"n_vocab\":1000", "\"n_vocab\":0"));
  expect_refused(header_frame("\"n_vocab\":1000", "\"n_vocab\":4294967296000"));
  expect_refused(header_frame("\"n_vocab\":1000", "\"n_vocab\":-1"));
  expect_refused(header_frame("\"n_vocab\":1000", "\"n_vocab\":\"1000\""));
  expect_refused(header_frame("\"store\":\"f32\"", "\"store\":\"topk:5000\""));
  expect_refused(header_frame("\"store\":\"f32\"", "\"store\":\"f8\""));
  expect_refused(header_frame("\"shard_count\":1", "\"shard_count\":0"));
  expect_refused(header_frame("\"algorithms\":[", "\"algorithms\":[3,"));
}

TEST(DumpDamage, HostileSizesAreRefusedBeforeTheyAreAllocated) {
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  // Bombs: frames of a few bytes that declare, or decode to, gigabytes.
  std::string zeros(size_t{64} << 20, '\0');
  expect_refused(frame_with("LGHD" + zeros));
  expect_refused(header_frame() + frame_with("LGRC" + zeros + zeros));
  std::string declared = "\x28\xB5\x2F\xFD\xE4";  // eight bytes of content size, single segment, checksum
  declared += std::string(7, '\xFF') + std::string(1, '\x0F') + std::string(100, '\0');
  expect_refused(declared);
  expect_refused(header_frame() + declared);
  const auto record = [](uint32_t n_tokens, uint32_t n_rows, uint32_t n_ranges, uint32_t id_bytes,
                         uint32_t count) {
    ByteBuffer payload;
    payload.put(kRecordTag);
    payload.put(uint64_t{0});
    payload.put(n_tokens);
    payload.put(n_rows);
    payload.put(Digest128{});
    payload.put(n_ranges);
    payload.put(id_bytes);
    payload.put(uint32_t{0});
    payload.put(count);
    payload.append("a");
    return header_frame() +
           frame_with(std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
  };
  const uint32_t most = 0xFFFFFFFFu;
  expect_refused(record(most, most, 1, 1, most));
  expect_refused(record(kMaxRecordTokens, most, 1, 1, most));
  expect_refused(record(10, 5, most, 1, 5));
  expect_refused(record(10, 5, 1, most, 5));
  expect_refused(record(10, 5, 1, 1, 6));
  expect_refused(record(4, 5, 1, 1, 5));
  expect_refused(record(10, 5, 1, 1, 5));  // right, but nothing follows
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 600 * 1024)
      << "the bombs themselves take some 300 MB to make";
}

TEST(DumpDamage, HostileSeekTablesAreRefused) {
  const Sample sample(100);
  std::mt19937 random(13);
  const size_t table = frames_of(sample.bytes).back().offset;
  for (size_t at = table; at < sample.bytes.size(); ++at) {
    std::string damaged = sample.bytes;
    damaged[at] = static_cast<char>(random());
    if (damaged == sample.bytes) continue;
    put_file(sample.folder / "b.zst", damaged);
    const auto find = [&] {
      DumpReader reader(sample.folder / "b.zst", {});
      DumpRecord record;
      reader.find_record(sample.records[0].id, record);
    };
    SCOPED_TRACE(at - table);
    error_of(find, ErrorCode::corrupt);
  }
}

TEST(DumpDamage, ACutInASecondSegmentKeepsTheFirst) {
  const Sample sample(100);
  const std::string path = sample.folder / "b.zst";
  {
    DumpWriter writer(path, test_header(kVocab), {});
    for (uint64_t i = 10; i < 13; ++i) {
      const std::vector<float> rows = normal_rows(2, kVocab, static_cast<uint32_t>(i));
      writer.add_rows(writer.begin_record(make_record(i, 2, 0, 2)), std::span<const float>(rows), 2);
    }
    writer.finish();
  }
  const std::string second = file_bytes(path);
  const std::vector<FrameInfo> frames = frames_of(second);
  for (const size_t cut :
       {size_t{10}, size_t(frames[0].end), size_t(frames[3].offset + 5), second.size() - 1}) {
    put_file(sample.folder / "cut.zst", sample.bytes + second.substr(0, cut));
    const size_t expected = sample.records.size() + records_before(frames, cut);
    EXPECT_EQ(recover_dump(sample.folder / "cut.zst", sample.folder / "ok.zst", true), expected);
    const std::vector<TestRecord> got = read_all(sample.folder / "ok.zst");
    ASSERT_EQ(got.size(), expected);
    EXPECT_TRUE(same_bits(got[0].f32, sample.expected[0].f32));
    EXPECT_EQ(read_all(sample.folder / "cut.zst", {.salvage = true}).size(), expected);
  }
}

TEST(DumpDamage, RecoverOfAWholeDumpCopiesIt) {
  const Sample sample(100);
  put_file(sample.folder / "two.zst", sample.bytes);
  std::string damage = "x";
  EXPECT_EQ(recover_dump(sample.folder / "a.zst", sample.folder / "b.zst", false, &damage),
            sample.records.size());
  EXPECT_EQ(damage, "");
  EXPECT_EQ(file_bytes(sample.folder / "b.zst"), sample.bytes);
  error_of([&] { recover_dump(sample.folder / "a.zst", sample.folder / "b.zst", false); }, ErrorCode::io);
}

}  // namespace
}  // namespace logitgate
