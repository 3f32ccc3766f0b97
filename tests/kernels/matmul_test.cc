// The matrix products of both phases: right within their rounding, and their bits independent of everything but operands.
// Contract: bounds are n_in · epsilon · Σ |w| |x|, the worst case of a chain of n_in roundings.
#include <gtest/gtest.h>

#include "kernels/cpu/simd.h"
#include "tests/support/backend_ops.h"
#include "tests/support/random_values.h"
#include "tests/support/reference_ops.h"

namespace logitgate::testing {
namespace {

constexpr WeightType kTypes[] = {WeightType::F32, WeightType::F16, WeightType::BF16, WeightType::Q8_0};

template <class T>
class Matmul : public ::testing::Test {};
using Elements = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Matmul, Elements);

template <class T>
std::vector<T> multiply(BackendOps<T>& ops, Phase phase, const Tensor& tensor, const std::vector<T>& x,
                        size_t n_tokens) {
  const Weight w = ops->load(tensor);
  ops.begin(phase, static_cast<int32_t>(n_tokens));
  const Activation y = ops.poisoned(n_tokens, static_cast<size_t>(w.n_out));
  ops->matmul(y, w, ops.upload(x, n_tokens));
  return ops.values(y);
}

template <class T>
void expect_product(Phase phase, WeightType type, int64_t n_in, int64_t n_out, size_t n_tokens) {
  const RandomTensor random = random_tensor(type, n_in, n_out, 7);
  RandomValues values(11);
  const auto x = values.normals<T>(n_tokens * static_cast<size_t>(n_in));
  BackendOps<T> ops;
  const auto y = multiply(ops, phase, random.tensor, x, n_tokens);
  const auto w = reference::dequantise(ops->load(random.tensor));
  const auto n = static_cast<size_t>(n_in);
  auto bound = reference::matmul(w, widen(x), n, true);
  for (double& b : bound) b *= static_cast<double>(n_in + 1) * kEpsilon<T>;
  expect_near(y, reference::matmul(w, widen(x), n), bound,
              fmt::format("{} {} {}x{} T={}", phase == Phase::prefill ? "gemm" : "gemv",
                          weight_type_info(type).name, n_in, n_out, n_tokens));
}

TYPED_TEST(Matmul, AgreesWithTheReference) {
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    for (const WeightType type : kTypes) {
      const int64_t block = weight_type_info(type).block_size;
      for (const int64_t n_in : {1, 3, 15, 17, 31, 32, 33, 96, 257, 544}) {
        if (n_in % block != 0) continue;
        for (const int64_t n_out : {1, 3, 13, 33, 97}) {
          for (const size_t n_tokens : {1, 3, 33})
            expect_product<TypeParam>(phase, type, n_in, n_out, n_tokens);
        }
      }
    }
  }
}

TYPED_TEST(Matmul, AgreesWithTheReferenceOverManyTokens) {
  expect_product<TypeParam>(Phase::prefill, WeightType::F16, 288, 50, 613);
  expect_product<TypeParam>(Phase::decode, WeightType::Q8_0, 288, 50, 71);
}

// Every row of the product is the same bits for any number of tokens before and after it.
TYPED_TEST(Matmul, RowsDoNotDependOnTheBatch) {
  using T = TypeParam;
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    const RandomTensor random =
        random_tensor(phase == Phase::prefill ? WeightType::F32 : WeightType::Q8_0, 320, 61, 5);
    RandomValues values(13);
    const auto x = values.normals<T>(70 * 320);
    BackendOps<T> ops;
    const auto all = multiply(ops, phase, random.tensor, x, 70);
    for (size_t m = 1; m <= 70; ++m) {
      const size_t skipped = 70 - m;  // the last m tokens, so that each changes its place
      const std::vector<T> part(x.begin() + static_cast<std::ptrdiff_t>(skipped * 320), x.end());
      const std::vector<T> want(all.begin() + static_cast<std::ptrdiff_t>(skipped * 61), all.end());
      ASSERT_EQ(multiply(ops, phase, random.tensor, part, m), want) << "m = " << m;
    }
  }
}

TYPED_TEST(Matmul, RowsDoNotDependOnTheirPlaceInTheMatrix) {
  using T = TypeParam;
  const RandomTensor random = random_tensor(WeightType::F32, 100, 131, 3);
  RandomValues values(17);
  const auto x = values.normals<T>(5 * 100);
  BackendOps<T> ops;
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    const auto all = multiply(ops, phase, random.tensor, x, 5);
    for (const size_t first : {1, 2, 3, 5, 7, 47, 48, 49, 130}) {
      Tensor part = random.tensor;
      part.data += first * part.row_bytes();
      part.ne[1] -= static_cast<int64_t>(first);
      part.n_bytes -= first * part.row_bytes();
      const auto y = multiply(ops, phase, part, x, 5);
      const size_t n_out = 131 - first;
      for (size_t t = 0; t < 5; ++t) {
        for (size_t o = 0; o < n_out; ++o) ASSERT_EQ(y[t * n_out + o], all[t * 131 + first + o]);
      }
    }
  }
}

TYPED_TEST(Matmul, BitsDoNotDependOnThreadsOrSimdLevel) {
  using T = TypeParam;
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    for (const WeightType type : kTypes) {
      for (const size_t n_tokens : {1, 2, 3, 5, 17, 34}) {
        const RandomTensor random = random_tensor(type, 352, 203, 23);
        RandomValues values(19);
        const auto x = values.normals<T>(n_tokens * 352);
        std::vector<T> first;
        for (const int threads : {1, 2, 3, 7}) {
          BackendOps<T> ops(threads);
          for (const char* level : {"", "avx2"}) {
            select_simd(level);
            const auto y = multiply(ops, phase, random.tensor, x, n_tokens);
            if (first.empty()) first = y;
            ASSERT_EQ(y, first) << threads << " threads, level '" << level << "'";
          }
        }
        select_simd();
      }
    }
  }
}

// The two phases are two configurations: some elements differ in their last bits.
TYPED_TEST(Matmul, PhasesAreTwoConfigurations) {
  using T = TypeParam;
  const RandomTensor random = random_tensor(WeightType::F32, 512, 64, 29);
  RandomValues values(31);
  const auto x = values.normals<T>(4 * 512);
  BackendOps<T> ops;
  EXPECT_NE(multiply(ops, Phase::prefill, random.tensor, x, 4),
            multiply(ops, Phase::decode, random.tensor, x, 4));
}

TYPED_TEST(Matmul, NoTokensIsNoWork) {
  BackendOps<TypeParam> ops;
  const RandomTensor random = random_tensor(WeightType::F32, 32, 8, 1);
  const Weight w = ops->load(random.tensor);
  ops->matmul({nullptr, 0, 8}, w, {nullptr, 0, 32});
}

TEST(Load, RefusesWhatItCannotUse) {
  BackendOps<float> ops;
  Tensor t = random_tensor(WeightType::F32, 32, 8, 1).tensor;
  t.n_bytes -= 1;
  EXPECT_THROW(ops->load(t), Error);
  t.type = WeightType::Q4_K;
  try {
    ops->load(t);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::unsupported);
    EXPECT_NE(e.message().find("Q4_K"), std::string::npos) << e.message();
  }
  Tensor huge = random_tensor(WeightType::F32, 32, 8, 1).tensor;
  huge.ne = {int64_t{1} << 40, int64_t{1} << 22, 1, 1};
  EXPECT_THROW(ops->load(huge), Error);
}

}  // namespace
}  // namespace logitgate::testing
