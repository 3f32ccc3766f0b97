// What the tests of dumps share: temporary folders, rows of every kind of number, writing and reading a whole
// dump. Contract: rows are functions of a seed alone.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "formats/dump_reader.h"
#include "formats/dump_writer.h"
#include "lib/error.h"

namespace logitgate::testing {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = ::testing::TempDir() + "dump_test_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp");
    path_ = pattern;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void put_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline DumpHeader test_header(uint32_t n_vocab, const std::string& store = "f32") {
  DumpHeader header;
  header.model_name = "Test \"model\" \xE2\x82\xAC";
  header.architecture = "qwen3";
  header.weights_digest = "00112233445566778899aabbccddeeff";
  header.weights_types = "Q8_0,F32";
  header.command = "prefill";
  header.precision = "f32";
  header.backend = "cpu";
  header.device = "cpu";
  header.algorithms = {"gemm:own", "gemv:own"};
  header.tool = "logitgate 0.1.0";
  header.rows = "all";
  header.store = parse_store(store);
  header.n_vocab = n_vocab;
  return header;
}

// Peaked logits: normal, with a few large ones.
inline std::vector<float> normal_rows(uint32_t n_rows, uint32_t n_vocab, uint32_t seed, float sigma = 2.5f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(-1.0f, sigma);
  std::vector<float> rows(size_t{n_rows} * n_vocab);
  for (float& x : rows) x = normal(random);
  for (uint32_t r = 0; r < n_rows; ++r) rows[size_t{r} * n_vocab + random() % n_vocab] += 12.0f;
  return rows;
}

// Every bit pattern: NaNs with payloads, infinities, denormals, both zeros among them.
inline std::vector<float> wild_rows(uint32_t n_rows, uint32_t n_vocab, uint32_t seed) {
  std::mt19937 random(seed);
  const uint32_t special[] = {0x7FC00000u, 0xFFC12345u, 0x7F800001u, 0x7F800000u, 0xFF800000u,
                              0x00000001u, 0x807FFFFFu, 0x00000000u, 0x80000000u, 0x7F7FFFFFu};
  std::vector<float> rows(size_t{n_rows} * n_vocab);
  for (float& x : rows) {
    const uint32_t bits = static_cast<uint32_t>(random());
    x = std::bit_cast<float>(bits % 3 == 0 ? special[bits / 3 % 10] : bits);
  }
  return rows;
}

struct TestRecord {
  DumpRecord record;
  std::vector<float> f32;  // what the dump returns: one of these
  std::vector<double> f64;
  std::vector<uint32_t> ids;
  std::vector<float> values;
  std::vector<double> lse;
};

inline DumpRecord make_record(uint64_t index, uint32_t n_tokens, uint32_t first, uint32_t n_rows) {
  DumpRecord record;
  record.id = fmt::format("record-{}", index);
  record.index = index;
  record.n_tokens = n_tokens;
  std::vector<int32_t> tokens(n_tokens);
  for (uint32_t i = 0; i < n_tokens; ++i) tokens[i] = static_cast<int32_t>(i * 7 + index);
  record.tokens_digest = digest_tokens(tokens);
  for (uint32_t i = 0; i < n_rows; ++i) record.positions.push_back(first + i);
  return record;
}

inline std::vector<TestRecord> read_all(const std::string& path, const DumpReaderOptions& options = {}) {
  DumpReader reader(path, options);
  std::vector<TestRecord> records;
  RowBlock block;
  for (DumpRecord record; reader.next_record(record);) {
    TestRecord got{record, {}, {}, {}, {}, {}};
    uint32_t rows = 0;
    while (reader.next_rows(block)) {
      EXPECT_EQ(block.first_row, rows);
      rows += block.n_rows;
      got.f32.insert(got.f32.end(), block.f32.begin(), block.f32.end());
      got.f64.insert(got.f64.end(), block.f64.begin(), block.f64.end());
      got.ids.insert(got.ids.end(), block.ids.begin(), block.ids.end());
      got.values.insert(got.values.end(), block.values.begin(), block.values.end());
      got.lse.insert(got.lse.end(), block.log_sum_exp.begin(), block.log_sum_exp.end());
    }
    EXPECT_EQ(rows, record.positions.size());
    records.push_back(std::move(got));
  }
  return records;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// The message of the Error that f throws, which must have this code.
template <class F>
std::string error_of(F f, ErrorCode code) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.message();
    return error.message();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace logitgate::testing
