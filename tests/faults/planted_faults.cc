// Faults planted in one kernel: what the gate exists to find, and proof that the two verbs are two configurations.
// Contract: linked with kernels built with LOGITGATE_FAULTS; a fault in the GEMM changes prefill alone, one in the GEMV
// decode-prime alone.
#include <fmt/format.h>

#include <cstdlib>

#include "tests/support/engine_run.h"

namespace logitgate {
namespace {

using testing::EngineRun;
using testing::TemporaryDirectory;

class PlantedFaults : public ::testing::TestWithParam<Precision> {
 protected:
  // The dump of a phase while the named fault ("" for none) is in the kernels.
  std::string bytes_of(Phase phase, const char* fault) {
    if (*fault == '\0')
      unsetenv("LOGITGATE_FAULT");
    else
      setenv("LOGITGATE_FAULT", fault, 1);
    EngineRun run;
    run.model = TESTDATA "/golden/qwen3.q8_0.gguf";
    run.tokens = TESTDATA "/golden/tokens.jsonl";
    run.phase = phase;
    run.precision = GetParam();
    const std::string path = directory_.file(fmt::format("out{}.zst", n_++));
    testing::run_engine(run, path);
    unsetenv("LOGITGATE_FAULT");
    return testing::read_file(path);
  }
  TemporaryDirectory directory_;
  int n_ = 0;
};

TEST_P(PlantedFaults, OneInTheGemmChangesPrefillAlone) {
  EXPECT_NE(bytes_of(Phase::prefill, "gemm"), bytes_of(Phase::prefill, ""));
  EXPECT_EQ(bytes_of(Phase::decode, "gemm"), bytes_of(Phase::decode, ""));
}

TEST_P(PlantedFaults, OneInTheGemvChangesDecodeAlone) {
  EXPECT_NE(bytes_of(Phase::decode, "gemv"), bytes_of(Phase::decode, ""));
  EXPECT_EQ(bytes_of(Phase::prefill, "gemv"), bytes_of(Phase::prefill, ""));
}

INSTANTIATE_TEST_SUITE_P(Both, PlantedFaults, ::testing::Values(Precision::f32, Precision::f64));

}  // namespace
}  // namespace logitgate
