// The engine against golden logits: trained Qwen3 models in four encodings, both phases, both precisions.
// Contract: golden values are exact arithmetic on the file's weights, rounded to float; f64 is within 2e-5 and keeps every
// argmax, f32 is within 1e-3.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "formats/npy.h"
#include "tests/support/engine_run.h"

namespace logitgate {
namespace {

using testing::EngineRun;
using testing::TemporaryDirectory;

struct Case {
  const char* model;
  Phase phase;
  Precision precision;
};

class Golden : public ::testing::TestWithParam<Case> {};

TEST_P(Golden, LogitsAreThoseOfExactArithmetic) {
  const Case& c = GetParam();
  const std::string base = fmt::format("{}/golden/{}", TESTDATA, c.model);
  NpyReader golden(base + ".logits.npy");
  const size_t n_rows = golden.shape().at(0), n_vocab = golden.shape().at(1);
  std::vector<float> expected(n_rows * n_vocab);
  golden.read(std::span<float>(expected));

  const TemporaryDirectory directory;
  EngineRun run;
  run.model = base + ".gguf";
  run.tokens = TESTDATA "/golden/tokens.jsonl";
  run.phase = c.phase;
  run.precision = c.precision;
  run.options.rows = RowSelection::all();
  testing::run_engine(run, directory.file("out.zst"));
  std::vector<double> logits;
  for (const testing::DumpedRecord& record : testing::read_dump(directory.file("out.zst")))
    logits.insert(logits.end(), record.logits.begin(), record.logits.end());
  ASSERT_EQ(logits.size(), 772 * n_vocab);
  ASSERT_TRUE(n_rows == 772 || n_rows == 152);  // other encodings than F32: the first five records

  const double bound = c.precision == Precision::f64 ? 2e-5 : 1e-3;
  double worst = 0;
  for (size_t row = 0; row < n_rows; ++row) {
    const float* want = &expected[row * n_vocab];
    const double* got = &logits[row * n_vocab];
    for (size_t i = 0; i < n_vocab; ++i) {
      const double diff = std::fabs(got[i] - want[i]);
      ASSERT_TRUE(diff <= bound) << "row " << row << " token " << i << ": " << got[i] << " for " << want[i];
      worst = std::max(worst, diff);
    }
    if (c.precision == Precision::f64) {
      ASSERT_EQ(std::max_element(got, got + n_vocab) - got, std::max_element(want, want + n_vocab) - want);
    }
  }
  RecordProperty("worst", fmt::format("{:.3g}", worst));
  std::printf("%s: worst %.3g\n", c.model, worst);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* model : {"qwen3.f32", "qwen3.f16", "qwen3.bf16", "qwen3.q8_0"})
    for (Phase phase : {Phase::prefill, Phase::decode})
      for (Precision precision : {Precision::f32, Precision::f64}) all.push_back({model, phase, precision});
  return all;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name =
      fmt::format("{}_{}_{}", info.param.model, info.param.phase == Phase::prefill ? "prefill" : "decode",
                  info.param.precision == Precision::f64 ? "f64" : "f32");
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Qwen3, Golden, ::testing::ValuesIn(cases()), case_name);

}  // namespace
}  // namespace logitgate
