// The dumps of the first release, in testdata/dumps: every later build must read them.
// Contract: records and values equal those in the .json files beside them (for f32, checked against the rows when written).
// The files are never written again; `--gtest_also_run_disabled_tests --gtest_filter=*Writes*` shows how they were.
#include <xxhash.h>

#include <nlohmann/json.hpp>

#include "tests/formats/dump_test_util.h"

namespace logitgate {
namespace {

using namespace logitgate::testing;
using nlohmann::ordered_json;

constexpr uint32_t kVocab = 300;
constexpr const char* kStores[] = {"f32", "f64", "bf16", "f16", "topk:4"};

std::string fixture(const std::string& store, const char* extension) {
  const std::string kind = store == "f32" ? "" : "_" + store.substr(0, store.find(':'));
  return std::string(TESTDATA) + "/dumps/first_release" + kind + extension;
}

template <class T>
std::string hex(const T* data, size_t n) {
  std::string text;
  for (size_t i = 0; i < n * sizeof(T); ++i) {
    text += fmt::format("{:02x}", reinterpret_cast<const uint8_t*>(data)[i]);
  }
  return text;
}

// Digest of all values, and the first ones as they are.
template <class T>
ordered_json summary(const std::vector<T>& values) {
  const XXH128_hash_t hash = XXH3_128bits(values.data(), values.size() * sizeof(T));
  return {{"count", values.size()},
          {"xxh3_128", fmt::format("{:016x}{:016x}", hash.high64, hash.low64)},
          {"first", hex(values.data(), std::min<size_t>(values.size(), 8))}};
}

ordered_json describe(const TestRecord& got) {
  ordered_json json = {{"id", got.record.id},
                       {"index", got.record.index},
                       {"n_tokens", got.record.n_tokens},
                       {"tokens_digest", hex(got.record.tokens_digest.data(), 16)},
                       {"positions", got.record.positions}};
  if (!got.f32.empty()) json["f32"] = summary(got.f32);
  if (!got.f64.empty()) json["f64"] = summary(got.f64);
  if (!got.ids.empty()) json["ids"] = summary(got.ids);
  if (!got.values.empty()) json["values"] = summary(got.values);
  if (!got.lse.empty()) json["log_sum_exp"] = summary(got.lse);
  return json;
}

TEST(DumpFixture, TheFirstReleasesDumpsAreRead) {
  for (const std::string store : kStores) {
    const ordered_json expected = ordered_json::parse(file_bytes(fixture(store, ".json")));
    const std::string path = fixture(store, ".zst");
    const std::vector<TestRecord> got = read_all(path);
    ASSERT_EQ(got.size(), expected.at("records").size()) << path;
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(describe(got[i]), expected["records"][i]) << path << " " << i;
    DumpReader reader(path, {});
    EXPECT_EQ(to_string(reader.header().store), store);
    EXPECT_EQ(reader.header().model_name, test_header(kVocab).model_name);
    EXPECT_EQ(reader.n_records(), got.size());
    EXPECT_EQ(reader.segment_headers().size(), 2u);
    DumpRecord record;
    for (const TestRecord& one : got) {
      ASSERT_TRUE(reader.find_record(one.record.id, record));
      EXPECT_TRUE(record == one.record);
    }
  }
}

TEST(DumpFixture, EveryMachineRoundsAndSelectsAlike) {
  const TempFolder folder;
  const std::vector<TestRecord> source = read_all(fixture("f32", ".zst"));
  for (const std::string store : kStores) {
    const ordered_json expected = ordered_json::parse(file_bytes(fixture(store, ".json")));
    DumpWriter writer(folder / "a", test_header(kVocab, store), {.force = true});
    for (const TestRecord& one : source) {
      const uint64_t ticket = writer.begin_record(one.record);
      writer.add_rows(ticket, std::span<const float>(one.f32),
                      static_cast<uint32_t>(one.record.positions.size()));
    }
    writer.finish();
    const std::vector<TestRecord> got = read_all(folder / "a");
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(describe(got[i]), expected["records"][i]) << store << " " << i;
  }
}

DumpRecord fixture_record(uint64_t index, const std::vector<uint32_t>& positions) {
  DumpRecord record = make_record(index, 64, 0, 0);
  record.positions = positions;
  return record;
}

std::vector<uint32_t> first_positions(uint32_t n) {
  std::vector<uint32_t> positions(n);
  for (uint32_t i = 0; i < n; ++i) positions[i] = i;
  return positions;
}

std::string write_segment(const std::string& path, const std::string& store,
                          const std::vector<std::pair<DumpRecord, std::vector<float>>>& records) {
  DumpWriter writer(path, test_header(kVocab, store), {.force = true});
  for (const auto& [record, rows] : records) {
    const uint64_t ticket = writer.begin_record(record);
    writer.add_rows(ticket, std::span<const float>(rows), static_cast<uint32_t>(record.positions.size()));
  }
  writer.finish();
  return file_bytes(path);
}

TEST(DumpFixture, DISABLED_WritesTheFixtures) {
  const TempFolder folder;
  for (const std::string store : kStores) {
    const std::vector<std::pair<DumpRecord, std::vector<float>>> first = {
        {fixture_record(0, first_positions(40)), normal_rows(40, kVocab, 1)},
        {fixture_record(1, {3, 4, 5, 63}), wild_rows(4, kVocab, 2)},
        {fixture_record(2, {}), {}}};
    const std::vector<std::pair<DumpRecord, std::vector<float>>> second = {
        {fixture_record(7, {63}), normal_rows(1, kVocab, 3)},
        {fixture_record(8, {0, 2}), normal_rows(2, kVocab, 4)}};
    const std::string path = fixture(store, ".zst");
    put_file(path, write_segment(folder / "a", store, first) + write_segment(folder / "b", store, second));
    ordered_json json = {{"records", ordered_json::array()}};
    for (const TestRecord& got : read_all(path)) json["records"].push_back(describe(got));
    if (store == "f32") {  // here what is written is known without reading it
      size_t i = 0;
      for (const auto* part : {&first, &second}) {
        for (const auto& [record, rows] : *part) {
          ASSERT_EQ(json["records"][i++], describe({record, rows, {}, {}, {}, {}}));
        }
      }
    }
    put_file(fixture(store, ".json"), json.dump(1) + "\n");
  }
}

}  // namespace
}  // namespace logitgate
