// Round trips of every stored type, byte determinism over threads and order of rows, and what the writer
// refuses. Contract: stored numbers come back bit for bit; narrowed ones equal an independent rounding.
#include <thread>

#include "tests/formats/dump_test_util.h"

namespace logitgate {
namespace {

using namespace logitgate::testing;

constexpr uint32_t kVocab = 1000;

// Three records: many rows, one row, none.
struct Batch {
  std::vector<DumpRecord> records = {make_record(0, 700, 0, 700), make_record(3, 9, 8, 1),
                                     make_record(4, 5, 0, 0)};
  std::vector<std::vector<float>> rows;

  Batch(std::vector<float> (*make)(uint32_t, uint32_t, uint32_t)) {
    for (const DumpRecord& record : records) {
      rows.push_back(
          make(static_cast<uint32_t>(record.positions.size()), kVocab, static_cast<uint32_t>(record.index)));
    }
  }
};

std::vector<float> plain_rows(uint32_t n_rows, uint32_t n_vocab, uint32_t seed) {
  return normal_rows(n_rows, n_vocab, seed);
}

void write_dump(const std::string& path, const Batch& batch, const std::string& store,
                DumpWriterOptions options = {}, uint32_t rows_a_call = 1) {
  DumpWriter writer(path, test_header(kVocab, store), options);
  for (size_t i = 0; i < batch.records.size(); ++i) {
    const uint64_t ticket = writer.begin_record(batch.records[i]);
    const uint32_t n = static_cast<uint32_t>(batch.records[i].positions.size());
    for (uint32_t r = 0; r < n; r += rows_a_call) {
      const uint32_t count = std::min(rows_a_call, n - r);
      writer.add_rows(ticket, std::span(batch.rows[i]).subspan(size_t{r} * kVocab, size_t{count} * kVocab),
                      count);
    }
  }
  writer.finish();
}

TEST(DumpRoundTrip, Float32ComesBackBitForBit) {
  const TempFolder folder;
  for (const bool wild : {false, true}) {
    const Batch batch(wild ? wild_rows : plain_rows);
    write_dump(folder / "a.zst", batch, "f32", {.force = true});
    const std::vector<TestRecord> got = read_all(folder / "a.zst");
    ASSERT_EQ(got.size(), batch.records.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(got[i].record == batch.records[i]);
      EXPECT_TRUE(same_bits(got[i].f32, batch.rows[i])) << "record " << i;
    }
  }
}

TEST(DumpRoundTrip, HeaderComesBack) {
  const TempFolder folder;
  write_dump(folder / "a.zst", Batch(plain_rows), "f32");
  DumpReader reader(folder / "a.zst", {});
  EXPECT_TRUE(reader.header() == test_header(kVocab));
  EXPECT_TRUE(reader.seekable());
  EXPECT_EQ(reader.n_records(), 3u);
}

}  // namespace
}  // namespace logitgate
