// Dumps as streams: pipes, cat of several, finding records by id, spilling, resuming, bounded memory, errors of outputs.
// Contract: whatever way a dump is written or read, the records are the same.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "tests/formats/dump_test_util.h"

namespace logitgate {
namespace {

using namespace logitgate::testing;

constexpr uint32_t kVocab = 500;

std::vector<float> rows_of(const DumpRecord& record) {
  return normal_rows(static_cast<uint32_t>(record.positions.size()), kVocab,
                     static_cast<uint32_t>(record.index));
}

DumpRecord record_of(uint64_t index) {
  const uint32_t n = static_cast<uint32_t>(index * 37 % 5);
  return make_record(index, 10 + n, 3, n);
}

void write_records(DumpWriter& writer, uint64_t begin, uint64_t end, uint64_t step = 1) {
  for (uint64_t i = begin; i < end; i += step) {
    const DumpRecord record = record_of(i);
    writer.add_rows(writer.begin_record(record), std::span<const float>(rows_of(record)),
                    static_cast<uint32_t>(record.positions.size()));
  }
}

void write_dump(const std::string& path, uint64_t begin, uint64_t end,
                DumpHeader header = test_header(kVocab), DumpWriterOptions options = {}, uint64_t step = 1) {
  DumpWriter writer(path, header, options);
  write_records(writer, begin, end, step);
  writer.finish();
}

void expect_records(const std::vector<TestRecord>& got, const std::vector<uint64_t>& indices) {
  ASSERT_EQ(got.size(), indices.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(got[i].record == record_of(indices[i]));
    EXPECT_TRUE(same_bits(got[i].f32, rows_of(record_of(indices[i]))));
  }
}

std::vector<uint64_t> range(uint64_t begin, uint64_t end, uint64_t step = 1) {
  std::vector<uint64_t> indices;
  for (uint64_t i = begin; i < end; i += step) indices.push_back(i);
  return indices;
}

TEST(DumpStream, PipesCarryWhatFilesHold) {
  const TempFolder folder;
  write_dump(folder / "a.zst", 0, 200);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread writing([&] {
    write_dump(fmt::format("/dev/fd/{}", ends[1]), 0, 200);
    ::close(ends[1]);
  });
  std::string bytes;
  {
    DumpReader reader(fmt::format("/dev/fd/{}", ends[0]), {});
    EXPECT_FALSE(reader.seekable());
    DumpRecord record;
    uint64_t n = 0;
    error_of([&] { reader.find_record("record-1", record); }, ErrorCode::io);
    while (reader.next_record(record)) EXPECT_TRUE(record == record_of(n++));
    EXPECT_EQ(n, 200u);
    EXPECT_EQ(reader.n_records(), 200u);
    EXPECT_EQ(reader.stored_bytes(), file_bytes(folder / "a.zst").size());
  }
  writing.join();
  ::close(ends[0]);
}

TEST(DumpStream, AClosedPipeIsAnErrorOfTheNextCall) {
  std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const auto write = [&] { write_dump(fmt::format("/dev/fd/{}", ends[1]), 0, 100000); };
  EXPECT_NE(error_of(write, ErrorCode::io).find("closed the pipe"), std::string::npos);
  ::close(ends[1]);
}

TEST(DumpStream, AFullDeviceIsAnError) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  EXPECT_NE(error_of([&] { write_dump("/dev/full", 0, 10); }, ErrorCode::io).find("No space"),
            std::string::npos);
}

TEST(DumpStream, ASlowReaderHoldsTheWriterBack) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  uint64_t spilled = 1;
  std::thread writing([&] {
    DumpWriter writer(fmt::format("/dev/fd/{}", ends[1]), test_header(kVocab),
                      {.threads = 2, .memory_bound = 300000});
    write_records(writer, 0, 800);
    writer.finish();
    spilled = writer.spilled_bytes();
    ::close(ends[1]);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  expect_records(read_all(fmt::format("/dev/fd/{}", ends[0])), range(0, 800));
  writing.join();
  ::close(ends[0]);
  EXPECT_EQ(spilled, 0u) << "what waits for a slow pipe must not go to the disk";
}

TEST(DumpStream, CatOfDumpsIsADump) {
  const TempFolder folder;
  write_dump(folder / "a.zst", 0, 30);
  write_dump(folder / "b.zst", 30, 50);
  DumpWriter(folder / "none.zst", test_header(kVocab), {}).finish();
  const std::string a = file_bytes(folder / "a.zst"), b = file_bytes(folder / "b.zst");
  put_file(folder / "ab.zst", a + file_bytes(folder / "none.zst") + b);
  expect_records(read_all(folder / "ab.zst"), range(0, 50));
  put_file(folder / "ba.zst", b + a);
  std::vector<uint64_t> swapped = range(30, 50);
  for (uint64_t i = 0; i < 30; ++i) swapped.push_back(i);
  expect_records(read_all(folder / "ba.zst"), swapped);
  DumpReader reader(folder / "ab.zst", {});
  EXPECT_EQ(reader.n_records(), 50u);
  EXPECT_EQ(reader.segment_headers().size(), 3u);
  put_file(folder / "aa.zst", a + a);
  EXPECT_NE(error_of([&] { read_all(folder / "aa.zst"); }, ErrorCode::corrupt).find("twice"),
            std::string::npos);
  const DumpSummary summary = verify_dump(folder / "ab.zst");
  EXPECT_EQ(summary.segments, 3u);
  EXPECT_EQ(summary.records, 50u);
  EXPECT_EQ(summary.stored_bytes, file_bytes(folder / "ab.zst").size());
  uint64_t rows = 0, tokens = 0;
  for (uint64_t i = 0; i < 50; ++i) rows += record_of(i).positions.size(), tokens += record_of(i).n_tokens;
  EXPECT_EQ(summary.rows, rows);
  EXPECT_EQ(summary.tokens, tokens);
  EXPECT_EQ(summary.decoded_bytes, rows * kVocab * 4);
}

TEST(DumpStream, SegmentsMustBelongTogether) {
  const TempFolder folder;
  write_dump(folder / "a.zst", 0, 3);
  const auto with = [&](auto change, ErrorCode code, bool allowed_mixed) {
    DumpHeader header = test_header(kVocab);
    change(header);
    write_dump(folder / "b.zst", 3, 5, header, {.force = true});
    put_file(folder / "ab.zst", file_bytes(folder / "a.zst") + file_bytes(folder / "b.zst"));
    error_of([&] { read_all(folder / "ab.zst"); }, code);
    if (allowed_mixed) {
      expect_records(read_all(folder / "ab.zst", {.allow_mixed = true}), range(0, 5));
    } else {
      error_of([&] { read_all(folder / "ab.zst", {.allow_mixed = true}); }, code);
      error_of([&] { DumpReader(folder / "ab.zst", {}).n_records(); }, code);
    }
  };
  with([](DumpHeader& h) { h.weights_digest = "ff"; }, ErrorCode::incomparable, false);
  with([](DumpHeader& h) { h.architecture = "llama"; }, ErrorCode::incomparable, false);
  with([](DumpHeader& h) { h.command = "decode-prime"; }, ErrorCode::incomparable, false);
  with([](DumpHeader& h) { h.precision = "f64"; }, ErrorCode::incomparable, false);
  with([](DumpHeader& h) { h.store = parse_store("bf16"); }, ErrorCode::incomparable, false);
  with([](DumpHeader& h) { h.device = "cuda"; }, ErrorCode::incomparable, true);
  with([](DumpHeader& h) { h.algorithms.push_back("x"); }, ErrorCode::incomparable, true);
  with([](DumpHeader& h) { h.tool = "logitgate 0.2.0"; }, ErrorCode::incomparable, true);
}

TEST(DumpStream, ShardsMergeIntoTheWholeRunsRecords) {
  const TempFolder folder;
  std::string merged;
  for (uint64_t shard = 0; shard < 3; ++shard) {
    DumpHeader header = test_header(kVocab);
    header.shard_index = shard;
    header.shard_count = 3;
    write_dump(folder / fmt::format("s{}", shard), shard, 31, header, {}, 3);
    merged += file_bytes(folder / fmt::format("s{}", shard));
  }
  put_file(folder / "merged.zst", merged);
  std::vector<uint64_t> order;
  for (uint64_t shard = 0; shard < 3; ++shard) {
    for (const uint64_t i : range(shard, 31, 3)) order.push_back(i);
  }
  expect_records(read_all(folder / "merged.zst"), order);
}

TEST(DumpStream, RecordsAreFoundById) {
  const TempFolder folder;
  write_dump(folder / "a.zst", 0, 40);
  write_dump(folder / "b.zst", 40, 70);
  put_file(folder / "ab.zst", file_bytes(folder / "a.zst") + file_bytes(folder / "b.zst"));
  DumpReader reader(folder / "ab.zst", {.threads = 2});
  DumpRecord record;
  RowBlock block;
  ASSERT_TRUE(reader.next_record(record));
  for (uint64_t i = 0; i < 70; ++i) {
    const uint64_t wanted = i * 41 % 70;
    ASSERT_TRUE(reader.find_record(fmt::format("record-{}", wanted), record));
    EXPECT_TRUE(record == record_of(wanted));
    if (i % 3 == 0) continue;  // rows that nobody reads
    std::vector<float> rows;
    while (reader.next_rows(block)) rows.insert(rows.end(), block.f32.begin(), block.f32.end());
    EXPECT_TRUE(same_bits(rows, rows_of(record)));
  }
  EXPECT_FALSE(reader.find_record("record-70", record));
  EXPECT_FALSE(reader.find_record("", record));
  ASSERT_TRUE(reader.next_record(record));  // the stream goes on where it was
  EXPECT_TRUE(record == record_of(1));
}

TEST(DumpStream, FoundRecordsOfManyBlocksComeWhole) {
  const TempFolder folder;
  constexpr uint32_t kWide = 100000;
  const std::vector<float> rows = normal_rows(60, kWide, 1);
  {
    DumpWriter writer(folder / "a.zst", test_header(kWide), {});
    for (uint64_t i = 0; i < 2; ++i) {
      writer.add_rows(writer.begin_record(make_record(i, 60, 0, 60)), std::span<const float>(rows), 60);
    }
    writer.finish();
  }
  DumpReader reader(folder / "a.zst", {.threads = 2});
  DumpRecord record;
  for (const char* id : {"record-1", "record-0", "record-1"}) {
    ASSERT_TRUE(reader.find_record(id, record));
    std::vector<float> got;
    for (RowBlock block; reader.next_rows(block);) got.insert(got.end(), block.f32.begin(), block.f32.end());
    EXPECT_TRUE(same_bits(got, rows));
  }
}

TEST(DumpStream, ManyRecordsSpanSeveralIndexFrames) {
  const TempFolder folder;
  constexpr uint64_t kMany = 70000;
  DumpWriter writer(folder / "a.zst", test_header(1), {});
  const float one = 1.0f;
  for (uint64_t i = 0; i < kMany; ++i) {
    DumpRecord record;
    record.id = std::to_string(i);
    record.index = i;
    record.n_tokens = 1;
    if (i % 100 == 0) record.positions = {0};
    const uint64_t ticket = writer.begin_record(record);
    if (i % 100 == 0) writer.add_rows(ticket, std::span<const float>(&one, 1), 1);
  }
  writer.finish();
  EXPECT_EQ(verify_dump(folder / "a.zst").records, kMany);
  DumpReader reader(folder / "a.zst", {});
  DumpRecord record;
  for (const uint64_t i : {uint64_t{0}, uint64_t{65535}, uint64_t{65536}, kMany - 1}) {
    ASSERT_TRUE(reader.find_record(std::to_string(i), record));
    EXPECT_EQ(record.index, i);
  }
}

TEST(DumpStream, BlocksAheadOfTheirTurnSpill) {
  const TempFolder folder;
  write_dump(folder / "a.zst", 0, 300);
  DumpWriter writer(folder / "b.zst", test_header(kVocab), {.threads = 2, .memory_bound = 5000});
  std::vector<uint64_t> tickets;
  for (uint64_t i = 0; i < 300; ++i) tickets.push_back(writer.begin_record(record_of(i)));
  for (uint64_t i = 300; i-- > 0;) {  // the first record's rows come last
    const DumpRecord record = record_of(i);
    writer.add_rows(tickets[i], std::span<const float>(rows_of(record)),
                    static_cast<uint32_t>(record.positions.size()));
  }
  writer.finish();
  EXPECT_GT(writer.spilled_bytes(), 100000u);
  EXPECT_EQ(file_bytes(folder / "a.zst"), file_bytes(folder / "b.zst"));
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder.path())) ++files;
  EXPECT_EQ(files, 2u);
}

TEST(DumpResume, ContinuesToTheSameBytes) {
  const TempFolder folder;
  write_dump(folder / "whole.zst", 0, 60);
  const std::string whole = file_bytes(folder / "whole.zst");
  std::mt19937 random(21);
  for (int i = 0; i < 25; ++i) {
    const size_t cut = i == 0 ? whole.size() : i == 1 ? 0 : random() % whole.size();
    put_file(folder / "r.zst.part", whole.substr(0, cut) + (i % 3 == 2 ? std::string(5000, '\0') : ""));
    {
      DumpWriter writer(folder / "r.zst", test_header(kVocab), {.threads = 1 + i % 2, .resume = true});
      EXPECT_FALSE(writer.already_finished());
      const uint64_t kept = writer.resumed_records();
      EXPECT_LE(kept, 60u);
      for (uint64_t r = 0; r < kept; ++r) writer.check_resumed(r, record_of(r));
      error_of([&] { writer.check_resumed(kept, record_of(0)); }, ErrorCode::incomparable);
      if (kept > 1) error_of([&] { writer.check_resumed(0, record_of(1)); }, ErrorCode::incomparable);
      write_records(writer, kept, 60);
      writer.finish();
    }
    EXPECT_EQ(file_bytes(folder / "r.zst"), whole) << "cut at " << cut;
    EXPECT_FALSE(std::filesystem::exists(folder / "r.zst.part"));
    std::filesystem::remove(folder / "r.zst");
  }
}

TEST(DumpResume, KeepsRecordsOfAWriterThatWasDropped) {
  const TempFolder folder;
  write_dump(folder / "whole.zst", 0, 60);
  {
    DumpWriter writer(folder / "r.zst", test_header(kVocab), {});
    write_records(writer, 0, 40);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "r.zst"));
  DumpWriter writer(folder / "r.zst", test_header(kVocab), {.resume = true});
  EXPECT_EQ(writer.resumed_records(), 40u);
  write_records(writer, 40, 60);
  writer.finish();
  EXPECT_EQ(file_bytes(folder / "r.zst"), file_bytes(folder / "whole.zst"));
}

TEST(DumpResume, AFinishedOutputIsLeftAlone) {
  const TempFolder folder;
  write_dump(folder / "a.zst", 0, 10);
  const std::string before = file_bytes(folder / "a.zst");
  DumpWriter writer(folder / "a.zst", test_header(kVocab), {.resume = true});
  EXPECT_TRUE(writer.already_finished());
  EXPECT_EQ(writer.resumed_records(), 10u);
  writer.check_resumed(9, record_of(9));
  writer.finish();
  EXPECT_EQ(file_bytes(folder / "a.zst"), before);
}

TEST(DumpResume, AnotherRunsOutputIsRefusedAndNamed) {
  const TempFolder folder;
  write_dump(folder / "a.zst", 0, 10);
  put_file(folder / "b.zst.part", file_bytes(folder / "a.zst").substr(0, 3000));
  DumpHeader other = test_header(kVocab);
  other.precision = "f64";
  for (const char* name : {"a.zst", "b.zst"}) {
    const std::string message =
        error_of([&] { DumpWriter(folder / name, other, {.resume = true}); }, ErrorCode::incomparable);
    EXPECT_NE(message.find("precision: f32, not f64"), std::string::npos) << message;
  }
  put_file(folder / "c.zst", "something else");
  error_of([&] { DumpWriter(folder / "c.zst", other, {.resume = true}); }, ErrorCode::corrupt);
  EXPECT_EQ(file_bytes(folder / "c.zst"), "something else");
  error_of([&] { DumpWriter("/dev/null", other, {.resume = true}); }, ErrorCode::usage);
}

long peak_kilobytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Peak memory of a child process that writes and reads a dump of n records.
long peak_of_child(const std::string& path, uint64_t n_records, bool read) {
  int ends[2];
  if (::pipe(ends) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    const std::vector<float> rows = normal_rows(4, 20000, 1);
    if (!read) {
      DumpWriter writer(path, test_header(20000), {.threads = 2, .force = true, .memory_bound = 1 << 20});
      for (uint64_t i = 0; i < n_records; ++i) {
        writer.add_rows(writer.begin_record(make_record(i, 4, 0, 4)), std::span<const float>(rows), 4);
      }
      writer.finish();
    } else {
      verify_dump(path, {.threads = 2});
    }
    const long peak = peak_kilobytes();
    [[maybe_unused]] const ssize_t written = ::write(ends[1], &peak, sizeof peak);
    ::_exit(0);
  }
  long peak = -1;
  ::close(ends[1]);
  if (::read(ends[0], &peak, sizeof peak) != sizeof peak) peak = -1;
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return peak;
}

TEST(DumpMemory, DoesNotGrowWithTheDump) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer keeps freed memory";
#endif
  const TempFolder folder;
  for (const bool read : {false, true}) {
    if (read) peak_of_child(folder / "small.zst", 180, false), peak_of_child(folder / "large.zst", 1800, false);
    const long small = peak_of_child(read ? folder / "small.zst" : "/dev/null", 180, read);
    const long large = peak_of_child(read ? folder / "large.zst" : "/dev/null", 1800, read);
    ASSERT_GT(small, 0);
    // 576 MB of rows against 58: what may differ is how full the queues of blocks under way were.
    EXPECT_LT(large, small + 16 * 1024) << (read ? "reading" : "writing");
  }
}

}  // namespace
}  // namespace logitgate
