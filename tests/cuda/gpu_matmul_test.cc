// Matrix products on the GPU: right within their rounding, and rows whose bits depend on nothing but their
// operands.
// Contract: bounds are (n_in · epsilon + 2 · operand epsilon) · Σ |w| |x|, the worst case of a chain of n_in
// roundings of rounded operands.
#include <gtest/gtest.h>

#include "tests/support/gpu_ops.h"
#include "tests/support/random_values.h"
#include "tests/support/reference_ops.h"

namespace logitgate::testing {
namespace {

constexpr WeightType kTypes[] = {WeightType::F32, WeightType::F16, WeightType::BF16, WeightType::Q8_0};

Weight on_host(const Tensor& t) { return {t.name, t.type, t.n_in(), t.n_out(), t.data}; }

std::vector<double> normals(size_t n, uint64_t seed) {
  RandomValues random(seed);
  const auto narrow = random.normals<float>(n);
  return {narrow.begin(), narrow.end()};
}

void expect_product(GpuOps& ops, Phase phase, WeightType type, int64_t n_in, int64_t n_out, size_t n_tokens) {
  const RandomTensor& random = ops.keep(random_tensor(type, n_in, n_out, 7));
  const auto n = static_cast<size_t>(n_in);
  const std::vector<double> x = normals(n_tokens * n, 11);
  const Weight w = ops->load(random.tensor);
  ops.begin(phase, static_cast<int32_t>(n_tokens));
  const Activation y = ops.poisoned(n_tokens, static_cast<size_t>(n_out));
  ops->matmul(y, w, ops.upload(x, n_tokens));
  const auto weights = reference::dequantise(on_host(random.tensor));
  auto bound = reference::matmul(weights, x, n, true);
  const Precision p = ops->precision();
  for (double& b : bound) b *= static_cast<double>(n_in + 1) * storage_epsilon(p) + 2.01 * operand_epsilon(p);
  expect_close(
      ops.values(y), reference::matmul(weights, x, n), bound,
      fmt::format("{} {} {} {}x{} T={}", precision_name(p), phase == Phase::prefill ? "gemm" : "gemv",
                  weight_type_info(type).name, n_in, n_out, n_tokens));
  ops.drop();
}

TEST(GpuMatmul, AgreesWithTheReference) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      for (const WeightType type : kTypes) {
        GpuOps ops(precision);
        const int64_t block = weight_type_info(type).block_size;
        for (const int64_t n_in : {1, 17, 33, 40, 96, 257, 1056}) {
          if (n_in % block != 0) continue;
          for (const int64_t n_out : {1, 33, 97})
            for (const size_t n_tokens : {1, 3, 9})
              if (take_one_of(31)) expect_product(ops, phase, type, n_in, n_out, n_tokens);
        }
      }
    }
  }
}

TEST(GpuMatmul, AgreesWithTheReferenceAtARealShape) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    GpuOps ops(precision);
    expect_product(ops, Phase::prefill, WeightType::Q8_0, 1024, 3072, 5);
    expect_product(ops, Phase::prefill, WeightType::BF16, 1024, 300, 130);
    expect_product(ops, Phase::decode, WeightType::Q8_0, 4096, 1024, 8);
  }
}

// Rows of y for the last m rows of x, so that each changes its place with m.
std::vector<double> last_rows(GpuOps& ops, const Weight& w, Activation x, Activation y, int64_t m) {
  const int64_t skipped = x.n_rows - m;
  const size_t offset = static_cast<size_t>(skipped * x.n_cols) * ops->element_size();
  const Activation part{static_cast<std::byte*>(x.data) + offset, m, x.n_cols};
  ops->matmul(y.head(m), w, part);
  return ops.values(y.head(m));
}

void expect_rows_alike(GpuOps& ops, Phase phase, WeightType type, int64_t n_in, int64_t n_out, int64_t most,
                       const std::vector<int64_t>& ms) {
  const RandomTensor& random = ops.keep(random_tensor(type, n_in, n_out, 5));
  const Weight w = ops->load(random.tensor);
  ops.begin(phase, 1);
  const Activation x = ops.upload(normals(static_cast<size_t>(most * n_in), 13), static_cast<size_t>(most));
  const Activation y = ops.poisoned(static_cast<size_t>(most), static_cast<size_t>(n_out));
  const std::vector<double> all = last_rows(ops, w, x, y, most);
  for (const int64_t m : ms) {
    const auto got = last_rows(ops, w, x, y, m);
    const std::vector<double> want(all.end() - static_cast<std::ptrdiff_t>(m * n_out), all.end());
    ASSERT_EQ(got == want, true) << precision_name(ops->precision()) << " " << n_in << "x" << n_out
                                 << " m=" << m << " of " << most;
  }
  ops.drop();
}

TEST(GpuMatmul, GemmRowsDoNotDependOnM) {
  LOGITGATE_NEEDS_GPU();
  std::vector<int64_t> every;
  for (int64_t m = 1; m < 4096; ++m)
    if (take_one_of(701)) every.push_back(m);
  for (const Precision precision : kGpuPrecisions) {
    GpuOps ops(precision);
    expect_rows_alike(ops, Phase::prefill, WeightType::BF16, 320, 48, 4096, every);
    expect_rows_alike(ops, Phase::prefill, WeightType::F16, 33, 17, 700,
                      {1, 2, 3, 31, 64, 65, 127, 129, 255, 511, 699});
  }
}

TEST(GpuMatmul, GemmRowsDoNotDependOnMAtRealShapes) {
  LOGITGATE_NEEDS_GPU();
  const std::vector<int64_t> some = {1,   2,   3,   7,   16,  31,  64,  100,  127,  128,  129,  200,
                                     255, 256, 257, 384, 511, 512, 777, 1024, 1500, 2048, 3000, 4095};
  const std::pair<int64_t, int64_t> shapes[] = {{4096, 1024}, {4096, 4096}, {1024, 3072}, {3072, 1024}};
  for (const Precision precision : kGpuPrecisions) {
    GpuOps ops(precision);
    for (const auto& [n_in, n_out] : shapes)
      expect_rows_alike(ops, Phase::prefill, WeightType::BF16, n_in, n_out, 4096, some);
    for (const std::string& line : ops->algorithms()) std::printf("%s\n", line.c_str());
  }
}

TEST(GpuMatmul, GemvRowsDoNotDependOnLanes) {
  LOGITGATE_NEEDS_GPU();
  std::vector<int64_t> every;
  for (int64_t m = 1; m < 40; ++m)
    if (take_one_of(13)) every.push_back(m);
  for (const Precision precision : kGpuPrecisions) {
    for (const WeightType type : kTypes) {
      GpuOps ops(precision);
      expect_rows_alike(ops, Phase::decode, type, 320, 61, 40, every);
      expect_rows_alike(ops, Phase::decode, type, 4096, 130, 40, every);
      expect_rows_alike(ops, Phase::decode, type, 9248, 3000, 11,
                        {1, 2, 4, 5, 8, 9});  // more than one segment, many rows a block
      expect_rows_alike(ops, Phase::decode, type, 1056, 70, 11, {1, 3, 8});  // fewer warps a row
      if (type != WeightType::Q8_0) expect_rows_alike(ops, Phase::decode, type, 33, 7, 40, every);
    }
  }
}

// The same algorithms, in a process of any history.
TEST(GpuMatmul, AlgorithmsArePinnedByShapeAlone) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    GpuOps first(precision);
    GpuOps second(precision);
    const RandomTensor a = random_tensor(WeightType::F16, 256, 512, 1);
    const RandomTensor b = random_tensor(WeightType::Q8_0, 512, 96, 2);
    (void)first->load(a.tensor);
    (void)first->load(b.tensor);
    const Buffer hog = second->allocate(size_t{2} << 30);
    (void)second->load(b.tensor);
    (void)second->load(a.tensor);
    EXPECT_EQ(first->algorithms(), second->algorithms());
    EXPECT_EQ(first->algorithms().size(), 2u);
  }
}

}  // namespace
}  // namespace logitgate::testing
