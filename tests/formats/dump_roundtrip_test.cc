// Round trips of every stored type, byte determinism over threads and order of rows, and what the writer refuses.
// Contract: stored numbers come back bit for bit; narrowed ones equal an independent rounding.
#include <zstd.h>

#include <algorithm>
#include <thread>

#include "tests/formats/dump_test_util.h"

namespace logitgate {
namespace {

using namespace logitgate::testing;

constexpr uint32_t kVocab = 1000;

// Three records: several blocks, one row, none.
struct Batch {
  std::vector<DumpRecord> records = {make_record(0, 700, 0, 700), make_record(3, 9, 8, 1),
                                     make_record(4, 5, 0, 0)};
  std::vector<std::vector<float>> rows;

  explicit Batch(std::vector<float> (*make)(uint32_t, uint32_t, uint32_t)) {
    for (const DumpRecord& record : records) {
      rows.push_back(
          make(static_cast<uint32_t>(record.positions.size()), kVocab, static_cast<uint32_t>(record.index)));
    }
  }
};

std::vector<float> plain_rows(uint32_t n_rows, uint32_t n_vocab, uint32_t seed) {
  return normal_rows(n_rows, n_vocab, seed);
}

template <class T>
void write_dump(const std::string& path, const Batch& batch, const std::string& store,
                DumpWriterOptions options = {}, uint32_t rows_a_call = 50) {
  options.force = true;
  DumpWriter writer(path, test_header(kVocab, store), options);
  for (size_t i = 0; i < batch.records.size(); ++i) {
    const uint64_t ticket = writer.begin_record(batch.records[i]);
    const uint32_t n = static_cast<uint32_t>(batch.records[i].positions.size());
    const std::vector<T> rows(batch.rows[i].begin(), batch.rows[i].end());
    for (uint32_t r = 0; r < n; r += rows_a_call) {
      const uint32_t count = std::min(rows_a_call, n - r);
      writer.add_rows(ticket, std::span<const T>(rows).subspan(size_t{r} * kVocab, size_t{count} * kVocab),
                      count);
    }
  }
  writer.finish();
}

TEST(DumpRoundTrip, Float32ComesBackBitForBit) {
  const TempFolder folder;
  for (const bool wild : {false, true}) {
    const Batch batch(wild ? wild_rows : plain_rows);
    for (const int level : {1, 3, 5}) {
      write_dump<float>(folder / "a.zst", batch, "f32", {.level = level});
      const std::vector<TestRecord> got = read_all(folder / "a.zst");
      ASSERT_EQ(got.size(), batch.records.size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(got[i].record == batch.records[i]);
        EXPECT_TRUE(same_bits(got[i].f32, batch.rows[i])) << "record " << i << " level " << level;
      }
    }
  }
}

TEST(DumpRoundTrip, Float64KeepsDoublesAndWidensFloats) {
  const TempFolder folder;
  DumpWriter writer(folder / "a.zst", test_header(kVocab, "f64"), {});
  std::mt19937_64 random(5);
  std::vector<double> doubles(size_t{300} * kVocab);
  for (double& x : doubles) x = std::bit_cast<double>(static_cast<uint64_t>(random()));
  const std::vector<float> floats = normal_rows(2, kVocab, 9);
  writer.add_rows(writer.begin_record(make_record(0, 300, 0, 300)), std::span<const double>(doubles), 300);
  writer.add_rows(writer.begin_record(make_record(1, 2, 0, 2)), std::span<const float>(floats), 2);
  writer.finish();
  const std::vector<TestRecord> got = read_all(folder / "a.zst");
  ASSERT_EQ(got.size(), 2u);
  EXPECT_TRUE(same_bits(got[0].f64, doubles));
  EXPECT_TRUE(same_bits(got[1].f64, std::vector<double>(floats.begin(), floats.end())));
}

// To nearest even on a grid of `bits` significant bits, exponents from `lowest`, largest finite value `most`.
double rounded(double x, int bits, int lowest, double most) {
  if (!std::isfinite(x) || x == 0.0) return x;
  const int exponent = std::max(std::ilogb(x), lowest) - (bits - 1);
  const double result = std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
  return std::fabs(result) > most ? std::copysign(std::numeric_limits<double>::infinity(), x)
                                  : std::copysign(result, x);
}

TEST(DumpRoundTrip, HalvesAreRoundedOnceToNearestEven) {
  const TempFolder folder;
  struct Kind {
    const char* store;
    int bits;
    int lowest;
    double most;
  };
  for (const Kind& kind : {Kind{"bf16", 8, -126, 0x1.FEp127}, Kind{"f16", 11, -14, 65504.0}}) {
    Batch batch(plain_rows);
    const std::vector<float> wild = wild_rows(100, kVocab, 3);
    std::copy(wild.begin(), wild.end(), batch.rows[0].begin());
    std::mt19937 random(4);
    for (size_t i = wild.size(); i < 2 * wild.size(); ++i) {  // around the range of f16, and ties
      batch.rows[0][i] =
          std::ldexp(static_cast<float>(random() % 8192) + 0.5f * static_cast<float>(random() % 2),
                     static_cast<int>(random() % 40) - 36);
    }
    write_dump<float>(folder / "a.zst", batch, kind.store);
    const std::vector<TestRecord> got = read_all(folder / "a.zst");
    ASSERT_EQ(got.size(), batch.records.size());
    for (size_t i = 0; i < batch.rows[0].size(); ++i) {
      const float x = batch.rows[0][i];
      const float y = got[0].f32[i];
      ASSERT_EQ(std::isnan(x), std::isnan(y)) << x;
      if (std::isnan(x)) continue;
      const double expected = rounded(static_cast<double>(x), kind.bits, kind.lowest, kind.most);
      ASSERT_EQ(std::bit_cast<uint64_t>(expected), std::bit_cast<uint64_t>(static_cast<double>(y)))
          << kind.store << x;
    }
  }
}

TEST(DumpRoundTrip, DoublesReachHalvesWithoutASecondRounding) {
  const TempFolder folder;
  // Just above a tie of f16 (2049 lies between 2048 and 2050), by less than a float can tell.
  const std::vector<double> doubles = {2049.0 + 1e-9,  2049.0 - 1e-9,  2049.0, 2051.0,
                                       -2049.0 - 1e-9, 65520.0 - 1e-9, 65520.0};
  const std::vector<float> expected = {
      2050.0f, 2048.0f, 2048.0f, 2052.0f, -2050.0f, 65504.0f, std::numeric_limits<float>::infinity()};
  const uint32_t n = static_cast<uint32_t>(doubles.size());
  DumpWriter writer(folder / "a.zst", test_header(n, "f16"), {});
  writer.add_rows(writer.begin_record(make_record(0, 1, 0, 1)), std::span<const double>(doubles), 1);
  writer.finish();
  EXPECT_TRUE(same_bits(read_all(folder / "a.zst").at(0).f32, expected));
}

TEST(DumpRoundTrip, HalvesSurviveBeingReadAndWrittenAgain) {
  const TempFolder folder;
  for (const char* store : {"bf16", "f16"}) {
    write_dump<float>(folder / "a.zst", Batch(wild_rows), store);
    const std::vector<TestRecord> first = read_all(folder / "a.zst");
    Batch again(wild_rows);
    for (size_t i = 0; i < first.size(); ++i) again.rows[i] = first[i].f32;
    write_dump<float>(folder / "b.zst", again, store);
    EXPECT_EQ(file_bytes(folder / "a.zst"), file_bytes(folder / "b.zst")) << store;
  }
}

struct Naive {
  std::vector<uint32_t> ids;
  double log_sum_exp;
};
Naive naive_topk(std::span<const float> row, uint32_t k) {
  Naive result;
  for (uint32_t id = 0; id < row.size(); ++id) result.ids.push_back(id);
  std::stable_sort(result.ids.begin(), result.ids.end(), [&](uint32_t a, uint32_t b) {
    if (std::isnan(row[a]) || std::isnan(row[b])) return std::isnan(row[a]) && !std::isnan(row[b]);
    return row[a] > row[b];
  });
  result.ids.resize(k);
  long double sum = 0;
  const double top = static_cast<double>(row[result.ids[0]]);
  for (const float x : row) sum += std::exp(static_cast<long double>(x) - static_cast<long double>(top));
  result.log_sum_exp =
      std::isinf(top) ? top : static_cast<double>(static_cast<long double>(top) + std::log(sum));
  return result;
}

TEST(DumpRoundTrip, TopKKeepsTheLargestAndTheSumOverAll) {
  const TempFolder folder;
  constexpr uint32_t kKept = 7;
  Batch batch(plain_rows);
  std::vector<float>& rows = batch.rows[0];
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (uint32_t i = 0; i < kVocab; ++i) rows[i] = static_cast<float>(i % 3);  // ties
  rows[kVocab + 500] = nan, rows[kVocab + 3] = -nan;                          // NaNs first, by rising id
  rows[2 * kVocab + 900] = inf;                                               // one infinity
  for (uint32_t i = 0; i < kVocab; ++i) rows[3 * kVocab + i] = -inf;          // nothing but -infinity
  for (uint32_t i = 0; i < kVocab; ++i) rows[4 * kVocab + i] = i % 2 == 0 ? 0.0f : -0.0f;
  write_dump<float>(folder / "a.zst", batch, "topk:7");
  const std::vector<TestRecord> got = read_all(folder / "a.zst");
  ASSERT_EQ(got.at(0).ids.size(), size_t{700} * kKept);
  for (uint32_t r = 0; r < 700; ++r) {
    const std::span<const float> row = std::span<const float>(rows).subspan(size_t{r} * kVocab, kVocab);
    const Naive expected = naive_topk(row, kKept);
    for (uint32_t i = 0; i < kKept; ++i) {
      ASSERT_EQ(got[0].ids[r * kKept + i], expected.ids[i]) << "row " << r;
      ASSERT_EQ(std::bit_cast<uint32_t>(got[0].values[r * kKept + i]),
                std::bit_cast<uint32_t>(row[expected.ids[i]]));
    }
    if (std::isnan(expected.log_sum_exp)) {
      ASSERT_TRUE(std::isnan(got[0].lse[r]));
    } else if (std::isinf(expected.log_sum_exp)) {
      ASSERT_EQ(got[0].lse[r], expected.log_sum_exp);
    } else {
      ASSERT_NEAR(got[0].lse[r], expected.log_sum_exp, 4e-15 * (1.0 + std::fabs(expected.log_sum_exp)));
    }
  }
  EXPECT_TRUE(std::isnan(got[0].values[kKept]));
  EXPECT_EQ(got[0].ids[kKept], 3u);
}

TEST(DumpRoundTrip, TopKOfDoublesAndBlocksOfAnotherDump) {
  const TempFolder folder;
  const Batch batch(plain_rows);
  write_dump<double>(folder / "a.zst", batch, "topk:5");
  write_dump<float>(folder / "b.zst", batch, "topk:5");
  EXPECT_EQ(file_bytes(folder / "a.zst"), file_bytes(folder / "b.zst"));
  DumpReader reader(folder / "a.zst", {});
  DumpWriter writer(folder / "c.zst", reader.header(), {});
  RowBlock block;
  for (DumpRecord record; reader.next_record(record);) {
    const uint64_t ticket = writer.begin_record(record);
    while (reader.next_rows(block)) writer.add_block(ticket, block);
  }
  writer.finish();
  EXPECT_EQ(file_bytes(folder / "a.zst"), file_bytes(folder / "c.zst"));
}

TEST(DumpRoundTrip, BytesDependOnNeitherThreadsNorCallsNorOrder) {
  const TempFolder folder;
  const Batch batch(plain_rows);
  write_dump<float>(folder / "a.zst", batch, "f32", {.threads = 1}, 1);
  const std::string expected = file_bytes(folder / "a.zst");
  for (const int threads : {1, 2, 3}) {
    write_dump<float>(folder / "b.zst", batch, "f32", {.threads = threads}, threads == 2 ? 700 : 33);
    EXPECT_EQ(file_bytes(folder / "b.zst"), expected) << threads;
  }
  // As decode lanes deliver: both records open, rows of the later one first.
  DumpWriter writer(folder / "c.zst", test_header(kVocab), {.threads = 2, .memory_bound = 1000});
  std::vector<uint64_t> tickets;
  for (const DumpRecord& record : batch.records) tickets.push_back(writer.begin_record(record));
  writer.add_rows(tickets[1], std::span<const float>(batch.rows[1]), 1);
  writer.add_rows(tickets[0], std::span<const float>(batch.rows[0]), 700);
  writer.finish();
  EXPECT_EQ(file_bytes(folder / "c.zst"), expected);
}

TEST(DumpRoundTrip, StandardZstdReadsEveryStore) {
  const TempFolder folder;
  for (const char* store : {"f32", "f64", "bf16", "f16", "topk:3"}) {
    for (const bool wild : {false, true}) {
      write_dump<float>(folder / "a.zst", Batch(wild ? wild_rows : plain_rows), store);
      const std::string bytes = file_bytes(folder / "a.zst");
      std::vector<char> out(size_t{64} << 20);
      const size_t n = ZSTD_decompress(out.data(), out.size(), bytes.data(), bytes.size());
      EXPECT_FALSE(ZSTD_isError(n)) << store << ": " << ZSTD_getErrorName(n);
      EXPECT_EQ(std::string(out.data(), 4), "LGHD");
    }
  }
}

TEST(DumpRoundTrip, SmallerThanZstdOfTheRawFloats) {
  const TempFolder folder;
  constexpr uint32_t kLargeVocab = 151936;
  const std::vector<float> rows = normal_rows(3, kLargeVocab, 1);
  DumpWriter writer(folder / "a.zst", test_header(kLargeVocab), {});
  writer.add_rows(writer.begin_record(make_record(0, 3, 0, 3)), std::span<const float>(rows), 3);
  writer.finish();
  std::vector<char> out(ZSTD_compressBound(rows.size() * sizeof(float)));
  const size_t raw = ZSTD_compress(out.data(), out.size(), rows.data(), rows.size() * sizeof(float), 3);
  EXPECT_LT(static_cast<double>(file_bytes(folder / "a.zst").size()), 0.93 * static_cast<double>(raw));
  EXPECT_TRUE(same_bits(read_all(folder / "a.zst").at(0).f32, rows));
}

TEST(DumpRoundTrip, ConstantAndMaskedRowsAreSmall) {
  const TempFolder folder;
  constexpr uint32_t kLargeVocab = 100000;
  std::vector<float> rows(3 * kLargeVocab, -std::numeric_limits<float>::infinity());
  std::fill(rows.begin(), rows.begin() + kLargeVocab, 0.0f);
  const std::vector<float> one = normal_rows(1, 1000, 3);  // a row that is masked but for its first thousand
  std::copy(one.begin(), one.end(), rows.begin() + 2 * kLargeVocab);
  DumpWriter writer(folder / "a.zst", test_header(kLargeVocab), {});
  writer.add_rows(writer.begin_record(make_record(0, 3, 0, 3)), std::span<const float>(rows), 3);
  writer.finish();
  EXPECT_LT(file_bytes(folder / "a.zst").size(), 100000u);
  EXPECT_TRUE(same_bits(read_all(folder / "a.zst").at(0).f32, rows));
}

TEST(DumpRoundTrip, HeaderAndPositionsComeBack) {
  const TempFolder folder;
  DumpHeader header = test_header(2);
  header.lossy = header.log_probs = true;
  header.shard_index = 2;
  header.shard_count = 5;
  DumpRecord record = make_record(7, 1000, 0, 0);
  record.id = "id with \"quotes\", \n and \xF0\x9F\x98\x80";
  for (uint32_t p = 0; p < 1000; p += p % 5 == 0 ? 1 : 3) record.positions.push_back(p);
  std::vector<float> rows(record.positions.size() * 2, 1.0f);
  DumpWriter writer(folder / "a.zst", header, {});
  writer.add_rows(writer.begin_record(record), std::span<const float>(rows),
                  static_cast<uint32_t>(rows.size() / 2));
  writer.finish();
  DumpReader reader(folder / "a.zst", {});
  EXPECT_TRUE(reader.header() == header);
  DumpRecord got;
  ASSERT_TRUE(reader.next_record(got));
  EXPECT_TRUE(got == record);
  EXPECT_FALSE(reader.next_record(got));
  EXPECT_FALSE(reader.next_record(got));
}

TEST(DumpRoundTrip, AnEmptyDumpIsOne) {
  const TempFolder folder;
  DumpWriter(folder / "a.zst", test_header(10), {}).finish();
  EXPECT_TRUE(read_all(folder / "a.zst").empty());
  const DumpSummary summary = verify_dump(folder / "a.zst");
  EXPECT_EQ(summary.records, 0u);
  EXPECT_EQ(summary.segments, 1u);
}

TEST(DumpRoundTrip, TheWriterRefusesWhatIsNoDump) {
  const TempFolder folder;
  const auto with_vocab = [&](uint32_t n) { DumpWriter(folder / "a", test_header(n), {}); };
  EXPECT_NE(error_of([&] { with_vocab(0); }, ErrorCode::usage).find("n_vocab"), std::string::npos);
  EXPECT_NE(error_of([&] { with_vocab(kMaxVocab + 1); }, ErrorCode::usage).find("n_vocab"),
            std::string::npos);
  error_of([&] { DumpWriter(folder / "a", test_header(4, "topk:5"), {}); }, ErrorCode::usage);
  error_of([&] { DumpWriter(folder / "a", test_header(4), {.level = 0}); }, ErrorCode::usage);
  for (const char* store :
       {"", "f8", "topk", "topk:", "topk:0", "topk:-1", "topk:1x", "topk:99999999999", "F32"}) {
    error_of([&] { parse_store(store); }, ErrorCode::usage);
  }
  DumpWriter writer(folder / "a", test_header(4), {});
  const std::vector<float> row(8, 0.0f);
  const std::vector<double> doubles(4, 0.0);
  const uint64_t ticket = writer.begin_record(make_record(5, 3, 0, 3));
  error_of([&] { writer.begin_record(make_record(5, 3, 0, 1)); }, ErrorCode::usage);  // index does not rise
  error_of([&] { writer.add_rows(ticket, std::span<const float>(row), 1); }, ErrorCode::usage);
  error_of([&] { writer.add_rows(ticket + 1, std::span<const float>(row), 2); }, ErrorCode::usage);
  writer.add_rows(ticket, std::span<const float>(row), 2);
  error_of([&] { writer.add_rows(ticket, std::span<const float>(row), 2); }, ErrorCode::usage);  // too many
  error_of([&] { writer.add_rows(ticket, std::span<const double>(doubles), 1); },
           ErrorCode::usage);                            // two kinds
  error_of([&] { writer.finish(); }, ErrorCode::usage);  // too few
  DumpRecord record = make_record(9, 3, 0, 0);
  record.positions = {1, 1};
  error_of([&] { writer.begin_record(record); }, ErrorCode::usage);
  record.positions = {3};
  error_of([&] { writer.begin_record(record); }, ErrorCode::usage);
  record.positions.clear();
  record.id.assign(kMaxIdBytes + 1, 'x');
  error_of([&] { writer.begin_record(record); }, ErrorCode::usage);
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

}  // namespace
}  // namespace logitgate
