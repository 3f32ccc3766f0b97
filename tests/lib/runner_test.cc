// The runner's promise: a record's rows have the same bits however the work is cut.
// Contract: exact equality of dumps over batch sizes, lanes, threads, shards and record order, for both phases and precisions.
#include "lib/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>

#include "lib/error.h"
#include "tests/support/engine_run.h"

namespace logitgate {
namespace {

using testing::DumpedRecord;
using testing::EngineRun;
using testing::TemporaryDirectory;

const char* const kModel = TESTDATA "/golden/qwen3.q8_0.gguf";

// Records of lengths around vector and block edges, ids by content.
std::string make_batch(const std::vector<int>& lengths) {
  std::mt19937 random(7);
  std::string text;
  for (size_t r = 0; r < lengths.size(); ++r) {
    text += fmt::format("{{\"id\": \"r{}\", \"tokens\": [", r);
    for (int t = 0; t < lengths[r]; ++t) text += fmt::format("{}{}", t == 0 ? "" : ", ", random() % 256);
    text += "]}\n";
  }
  return text;
}

class RunnerTest : public ::testing::TestWithParam<std::tuple<Phase, Precision>> {
 protected:
  void SetUp() override {
    run_.model = kModel;
    run_.tokens = directory_.file("in.jsonl");
    run_.phase = std::get<0>(GetParam());
    run_.precision = std::get<1>(GetParam());
    run_.options.rows = RowSelection::all();
    testing::write_file(run_.tokens, make_batch({1, 17, 2, 64, 33, 5, 16, 40}));
  }
  std::string bytes_of(const EngineRun& run) {
    const std::string path = directory_.file(fmt::format("out{}.zst", n_++));
    testing::run_engine(run, path);
    return testing::read_file(path);
  }
  TemporaryDirectory directory_;
  EngineRun run_;
  int n_ = 0;
};

TEST_P(RunnerTest, BytesDoNotDependOnBatchLanesThreads) {
  const std::string reference = bytes_of(run_);
  ASSERT_FALSE(reference.empty());
  EXPECT_EQ(bytes_of(run_), reference) << "second run";
  for (int width : {1, 3, 7, 64, 4096}) {
    EngineRun run = run_;
    run.options.batch_tokens = run.options.lanes = width;
    EXPECT_EQ(bytes_of(run), reference) << "width " << width;
  }
  for (int threads : {1, 3}) {
    EngineRun run = run_;
    run.threads = threads;
    EXPECT_EQ(bytes_of(run), reference) << "threads " << threads;
  }
}

std::map<std::string, std::vector<double>> by_id(const std::vector<DumpedRecord>& records) {
  std::map<std::string, std::vector<double>> rows;
  for (const DumpedRecord& record : records) rows[record.record.id] = record.logits;
  return rows;
}

TEST_P(RunnerTest, RowsDoNotDependOnCompanyOrOrder) {
  testing::run_engine(run_, directory_.file("all.zst"));
  const auto all = by_id(testing::read_dump(directory_.file("all.zst")));
  std::vector<std::string> lines;
  std::istringstream text(testing::read_file(run_.tokens));
  for (std::string line; std::getline(text, line);) lines.push_back(line + "\n");

  std::string reversed, alone = lines[3];
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) reversed += *line;
  for (const std::string& batch : {reversed, alone}) {
    const std::string path = directory_.file(fmt::format("part{}.zst", n_++));
    testing::write_file(run_.tokens, batch);
    testing::run_engine(run_, path);
    for (const auto& [id, rows] : by_id(testing::read_dump(path))) EXPECT_EQ(rows, all.at(id)) << id;
  }
}

TEST_P(RunnerTest, KeepsTheSelectedRowsOnly) {
  testing::run_engine(run_, directory_.file("all.zst"));
  const std::vector<DumpedRecord> all = testing::read_dump(directory_.file("all.zst"));
  for (const char* selection : {"last", "0:1", "-3:", "2:-2", "5:6"}) {
    run_.options.rows = parse_rows(selection);
    const std::string path = directory_.file(fmt::format("rows{}.zst", n_++));
    const RunTotals totals = testing::run_engine(run_, path);
    const std::vector<DumpedRecord> some = testing::read_dump(path);
    ASSERT_EQ(some.size(), all.size());
    size_t n_rows = 0;
    for (size_t r = 0; r < all.size(); ++r) {
      const std::vector<uint32_t> positions = run_.options.rows.select(all[r].record.n_tokens);
      ASSERT_EQ(some[r].record.positions, positions) << selection;
      n_rows += positions.size();
      const size_t n_vocab = all[r].logits.size() / all[r].record.n_tokens;
      for (size_t i = 0; i < positions.size(); ++i)
        ASSERT_TRUE(std::equal(&some[r].logits[i * n_vocab], &some[r].logits[i * n_vocab] + n_vocab,
                               &all[r].logits[positions[i] * n_vocab]))
            << selection << " record " << r << " row " << i;
    }
    EXPECT_EQ(totals.rows, n_rows);
  }
}

TEST_P(RunnerTest, ShardsTogetherAreTheWhole) {
  testing::run_engine(run_, directory_.file("all.zst"));
  const auto all = by_id(testing::read_dump(directory_.file("all.zst")));
  size_t n = 0;
  for (uint64_t i = 0; i < 3; ++i) {
    run_.options.shard_index = i;
    run_.options.shard_count = 3;
    const std::string path = directory_.file(fmt::format("shard{}.zst", i));
    testing::run_engine(run_, path);
    for (const DumpedRecord& record : testing::read_dump(path)) {
      EXPECT_EQ(record.record.index % 3, i);
      EXPECT_EQ(record.logits, all.at(record.record.id));
      ++n;
    }
  }
  EXPECT_EQ(n, all.size());
}

INSTANTIATE_TEST_SUITE_P(Both, RunnerTest,
                         ::testing::Combine(::testing::Values(Phase::prefill, Phase::decode),
                                            ::testing::Values(Precision::f32, Precision::f64)));

}  // namespace
}  // namespace logitgate
