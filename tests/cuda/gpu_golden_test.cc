// The engine on the GPU against golden logits and against the CPU, and its dumps against each other, byte by
// byte.
// Contract: golden values are exact arithmetic on the file's weights, rounded to float. f64 is within 2e-5,
// f32 within 1e-3. tf32 and bf16 round operands with u = 2^-11 and 2^-9; of logits up to 19 after four layers
// 128 u is allowed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "formats/npy.h"
#include "tests/support/engine_run.h"
#include "tests/support/gpu_ops.h"

namespace logitgate::testing {
namespace {

std::vector<double> logits_of(const EngineRun& run, const TemporaryDirectory& directory,
                              const std::string& name) {
  run_engine(run, directory.file(name));
  std::vector<double> logits;
  for (const DumpedRecord& record : read_dump(directory.file(name)))
    logits.insert(logits.end(), record.logits.begin(), record.logits.end());
  return logits;
}

EngineRun golden_run(const std::string& model, Phase phase, Precision precision) {
  EngineRun run;
  run.model = fmt::format("{}/golden/{}.gguf", TESTDATA, model);
  run.tokens = TESTDATA "/golden/tokens.jsonl";
  run.phase = phase;
  run.precision = precision;
  run.device = "cuda";
  run.options.rows = RowSelection::all();
  return run;
}

double bound_of(Precision precision) {
  switch (precision) {
    case Precision::f64:
      return 2e-5;
    case Precision::f32:
      return 1e-3;
    case Precision::tf32:
      return 128 * std::ldexp(1.0, -11);
    default:
      return 128 * std::ldexp(1.0, -9);
  }
}

TEST(GpuGolden, LogitsAreThoseOfExactArithmetic) {
  LOGITGATE_NEEDS_GPU();
  for (const char* model : {"qwen3.f32", "qwen3.f16", "qwen3.bf16", "qwen3.q8_0"}) {
    NpyReader golden(fmt::format("{}/golden/{}.logits.npy", TESTDATA, model));
    const size_t n_rows = golden.shape().at(0), n_vocab = golden.shape().at(1);
    std::vector<float> expected(n_rows * n_vocab);
    golden.read(std::span<float>(expected));
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      for (const Precision precision : kGpuPrecisions) {
        const TemporaryDirectory directory;
        EngineRun run = golden_run(model, phase, precision);
        if (phase == Phase::decode) run.options.lanes = 8;
        const auto logits = logits_of(run, directory, "out.zst");
        ASSERT_EQ(logits.size(), 772 * n_vocab);
        double worst = 0;
        for (size_t i = 0; i < expected.size(); ++i) {
          const double diff = std::fabs(logits[i] - expected[i]);
          ASSERT_TRUE(diff <= bound_of(precision))
              << model << " " << precision_name(precision) << " row " << i / n_vocab << ": " << diff;
          worst = std::max(worst, diff);
        }
        std::printf("%-10s %-8s %-5s worst %.3g\n", model, phase == Phase::prefill ? "prefill" : "decode",
                    precision_name(precision), worst);
        if (precision != Precision::f64) continue;
        for (size_t row = 0; row < n_rows; ++row) {
          const double* got = &logits[row * n_vocab];
          const float* want = &expected[row * n_vocab];
          ASSERT_EQ(std::max_element(got, got + n_vocab) - got,
                    std::max_element(want, want + n_vocab) - want);
        }
      }
    }
  }
}

TEST(GpuGolden, F64IsTheCpus) {
  LOGITGATE_NEEDS_GPU();
  for (const char* model : {"qwen3.f32", "qwen3.q8_0"}) {
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      const TemporaryDirectory directory;
      EngineRun run = golden_run(model, phase, Precision::f64);
      run.store = StoreSpec{StoreType::f64, 0};
      const auto gpu = logits_of(run, directory, "gpu.zst");
      run.device = "cpu";
      run.threads = 0;
      const auto cpu = logits_of(run, directory, "cpu.zst");
      ASSERT_EQ(gpu.size(), cpu.size());
      double worst = 0;
      for (size_t i = 0; i < cpu.size(); ++i)
        worst = std::max(worst, std::fabs(gpu[i] - cpu[i]) / std::max(1.0, std::fabs(cpu[i])));
      std::printf("%s %s: GPU f64 against CPU f64 %.3g\n", model,
                  phase == Phase::prefill ? "prefill" : "decode", worst);
      EXPECT_TRUE(worst <= 1e-9) << worst;
    }
  }
}

TEST(GpuGolden, DumpsDoNotDependOnBatchesOrLanes) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    const TemporaryDirectory directory;
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      std::string first;
      for (const int32_t width : {0, 1, 3, 64, 100}) {
        if (phase == Phase::decode && width > 8) continue;
        if (phase == Phase::prefill && width > 0 && width < 64) continue;
        EngineRun run = golden_run("qwen3.q8_0", phase, precision);
        (phase == Phase::prefill ? run.options.batch_tokens : run.options.lanes) = width;
        const std::string path = directory.file(fmt::format("{}-{}.zst", static_cast<int>(phase), width));
        run_engine(run, path);
        const std::string bytes = read_file(path);
        if (first.empty()) first = bytes;
        EXPECT_EQ(bytes == first, true) << precision_name(precision) << " width " << width;
      }
    }
  }
}

}  // namespace
}  // namespace logitgate::testing
