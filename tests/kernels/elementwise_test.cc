// Norms, rotation, activations, embedding, rows and the head: right within their rounding, bits independent of the rest.
// Contract: bounds count the roundings of an element's path; sums of n terms add n of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "kernels/cpu/simd.h"
#include "tests/support/backend_ops.h"
#include "tests/support/random_values.h"
#include "tests/support/reference_ops.h"

namespace logitgate::testing {
namespace {

template <class T>
class Elementwise : public ::testing::Test {};
using Elements = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, Elements);

constexpr size_t kLengths[] = {1, 2, 3, 15, 16, 17, 31, 33, 64, 257, 1000};

// |want| · n roundings, and the least number for results that underflow
template <class T>
std::vector<double> roundings(const std::vector<double>& want, double n) {
  std::vector<double> bound(want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    bound[i] =
        n * kEpsilon<T> * std::fabs(want[i]) + static_cast<double>(std::numeric_limits<T>::denorm_min());
  }
  return bound;
}

TYPED_TEST(Elementwise, RmsNorm) {
  using T = TypeParam;
  RandomValues random(3);
  for (const WeightType type : {WeightType::F32, WeightType::BF16}) {
    for (const size_t n : kLengths) {
      for (const size_t groups : {1, 3}) {  // a whole row, and heads
        BackendOps<T> ops;
        const RandomTensor w = random_tensor(type, static_cast<int64_t>(n), 1, n);
        const Weight weight = ops->load(w.tensor);
        const auto x = random.normals<T>(5 * groups * n, 3);
        const Activation y = ops.poisoned(5, groups * n), in = ops.upload(x, 5);
        ops->rms_norm(y, in, weight, 1e-6);
        const auto want = reference::rms_norm(widen(x), reference::dequantise(weight), 1e-6);
        expect_near(ops.values(y), want, roundings<T>(want, static_cast<double>(n) / 2 + 6),
                    fmt::format("n = {}", n));
        ops->rms_norm(in, in, weight, 1e-6);
        EXPECT_EQ(ops.values(in), ops.values(y)) << "in place, n = " << n;
      }
    }
  }
}

TYPED_TEST(Elementwise, RmsNormOfZerosIsZero) {
  using T = TypeParam;
  BackendOps<T> ops;
  const RandomTensor w = random_tensor(WeightType::F32, 40, 1, 1);
  const Activation y = ops.poisoned(2, 40);
  ops->rms_norm(y, ops.upload(std::vector<T>(80), 2), ops->load(w.tensor), 1e-5);
  EXPECT_EQ(ops.values(y), std::vector<T>(80));
}

RopeTable random_rope(int32_t n_rot, int32_t n_positions, bool interleaved) {
  RopeTable table;
  table.n_rot = n_rot;
  table.n_positions = n_positions;
  table.interleaved = interleaved;
  RandomValues random(5);
  for (int32_t i = 0; i < n_positions * n_rot / 2; ++i) {
    const double angle = random.normal() * 3;
    table.cos.push_back(std::cos(angle));
    table.sin.push_back(std::sin(angle));
  }
  return table;
}

TYPED_TEST(Elementwise, Rope) {
  using T = TypeParam;
  RandomValues random(7);
  for (const bool interleaved : {false, true}) {
    for (const auto& [head_dim, n_rot] :
         {std::pair{2, 2}, {6, 2}, {10, 10}, {34, 32}, {64, 64}, {128, 128}}) {
      const RopeTable table = random_rope(n_rot, 40, interleaved);
      const size_t n_cols = 3 * static_cast<size_t>(head_dim);
      BackendOps<T> ops;
      const DeviceRope rope = ops->load_rope(table);
      // Two records: positions 30… and 2….
      ops.cache().reserve(0, 40);
      ops.cache().reserve(1, 40);
      TokenBatch batch;
      batch.tokens.resize(9);
      batch.pieces = {{0, 0, 5, 30}, {1, 5, 4, 2}};
      ops->begin(batch, ops.cache());
      const auto x = random.normals<T>(9 * n_cols);
      const Activation in = ops.upload(x, 9);
      ops->rope(in, rope, head_dim);
      const std::vector<int32_t> positions = {30, 31, 32, 33, 34, 2, 3, 4, 5};
      const auto want = reference::rope(widen(x), table, static_cast<size_t>(head_dim), positions);
      double largest = 0;
      for (const T v : x) largest = std::max(largest, std::fabs(static_cast<double>(v)));
      expect_near(ops.values(in), want, std::vector<double>(want.size(), 4 * largest * kEpsilon<T>),
                  fmt::format("head_dim {} n_rot {}", head_dim, n_rot));
    }
  }
}

TYPED_TEST(Elementwise, RopePastTheTableIsRefused) {
  BackendOps<TypeParam> ops;
  const DeviceRope rope = ops->load_rope(random_rope(4, 3, false));
  ops.begin(Phase::prefill, 4);
  EXPECT_THROW(ops->rope(ops.poisoned(4, 4), rope, 4), Error);
}

TYPED_TEST(Elementwise, SwigluAndAdd) {
  using T = TypeParam;
  RandomValues random(9);
  for (const size_t n : kLengths) {
    BackendOps<T> ops;
    const auto gate = random.normals<T>(3 * n, 8), up = random.normals<T>(3 * n);
    const Activation y = ops.poisoned(3, n), g = ops.upload(gate, 3), u = ops.upload(up, 3);
    ops->swiglu(y, g, u);
    const auto want = reference::swiglu(widen(gate), widen(up));
    expect_near(ops.values(y), want, roundings<T>(want, 5), fmt::format("swiglu n = {}", n));
    ops->swiglu(g, g, u);
    EXPECT_EQ(ops.values(g), ops.values(y)) << "in place";
    std::vector<T> sum(3 * n);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = ops.values(y)[i] + up[i];
    ops->add(y, u);
    EXPECT_EQ(ops.values(y), sum);
  }
}

TYPED_TEST(Elementwise, SwigluAtTheEnds) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  BackendOps<T> ops;
  const Activation y = ops.poisoned(1, 6);
  ops->swiglu(y, ops.upload({inf, nan, T(-1e4), T(1e4), 0, T(-0.0)}, 1), ops.upload({1, 1, 1, 1, 1, 1}, 1));
  const auto got = ops.values(y);
  EXPECT_EQ(got[0], inf);
  EXPECT_TRUE(std::isnan(got[1]));
  EXPECT_EQ(got[2], 0);
  EXPECT_EQ(got[3], T(1e4));
  EXPECT_EQ(got[4], 0);
  EXPECT_EQ(got[5], 0);
}

TYPED_TEST(Elementwise, EmbedScalesExactRows) {
  using T = TypeParam;
  for (const WeightType type : {WeightType::F32, WeightType::F16, WeightType::BF16, WeightType::Q8_0}) {
    BackendOps<T> ops;
    const RandomTensor w = random_tensor(type, 64, 11, 21);
    const Weight weight = ops->load(w.tensor);
    const auto rows = reference::dequantise(weight);
    const std::vector<int32_t> tokens = {10, 0, 3, 3, 7};
    ops.begin(Phase::prefill, 5, tokens);
    const Activation x = ops.poisoned(5, 64);
    ops->embed(x, weight, 1.5);
    const auto got = ops.values(x);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i], static_cast<T>(1.5) *
                            static_cast<T>(rows[static_cast<size_t>(tokens[i / 64]) * 64 + i % 64]));
    }
    ops.begin(Phase::prefill, 1, {11});
    EXPECT_THROW(ops->embed(ops.poisoned(1, 64), weight, 1), Error);
  }
}

TYPED_TEST(Elementwise, GatherAndRead) {
  using T = TypeParam;
  BackendOps<T> ops;
  const Activation x = ops.upload({1, 2, 3, 4, 5, 6}, 3);
  const Activation y = ops.poisoned(4, 2);
  ops->gather_rows(y, x, std::vector<int32_t>{2, 0, 0, 1});
  EXPECT_EQ(ops->read(y), (std::vector<double>{5, 6, 1, 2, 1, 2, 3, 4}));
  EXPECT_THROW(ops->gather_rows(y, x, std::vector<int32_t>{2, 0, 0, 3}), Error);
}

// Collects what lm_head gives; checks the order.
template <class T>
class Collector : public LogitSink {
 public:
  void consume(const LogitChunk& chunk) override {
    EXPECT_EQ(chunk.first_row, n_rows);
    n_rows += chunk.n_rows;
    ++n_chunks;
    largest = std::max(largest, chunk.n_rows * chunk.n_vocab * static_cast<int64_t>(sizeof(T)));
    if constexpr (sizeof(T) == 8) {
      EXPECT_TRUE(chunk.f32.empty());
      values.insert(values.end(), chunk.f64.begin(), chunk.f64.end());
    } else {
      EXPECT_TRUE(chunk.f64.empty());
      values.insert(values.end(), chunk.f32.begin(), chunk.f32.end());
    }
  }
  std::vector<T> values;
  int64_t n_rows = 0, n_chunks = 0, largest = 0;
};

TYPED_TEST(Elementwise, LmHeadIsTheProductInBoundedChunks) {
  using T = TypeParam;
  const RandomTensor w = random_tensor(WeightType::F16, 8, 150001, 33);
  RandomValues random(35);
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    BackendOps<T> ops;
    const Weight weight = ops->load(w.tensor);
    const size_t n = 75;
    ops.begin(phase, static_cast<int32_t>(n));
    const Activation x = ops.upload(random.normals<T>(n * 8), n), y = ops.poisoned(n, 150001);
    ops->matmul(y, weight, x);
    Collector<T> sink;
    ops->lm_head(weight, x, sink);
    EXPECT_EQ(sink.n_rows, 75);
    EXPECT_GT(sink.n_chunks, 1);
    EXPECT_LE(sink.largest, 40 << 20);
    EXPECT_TRUE(sink.values == ops.values(y));
  }
}

// The norm, rotation and activation of AVX2 and AVX-512 machines, and of one thread and many, are the same bits.
TYPED_TEST(Elementwise, BitsDoNotDependOnThreadsOrSimdLevel) {
  using T = TypeParam;
  RandomValues random(11);
  const size_t n = 333;
  const auto x = random.normals<T>(100 * n, 4), up = random.normals<T>(100 * n);
  const RandomTensor w = random_tensor(WeightType::F32, static_cast<int64_t>(n), 1, 1);
  std::vector<T> first;
  for (const int threads : {1, 3}) {
    BackendOps<T> ops(threads);
    for (const char* level : {"", "avx2"}) {
      select_simd(level);
      const Activation a = ops.poisoned(100, n), b = ops.poisoned(100, n);
      ops->rms_norm(a, ops.upload(x, 100), ops->load(w.tensor), 1e-6);
      ops->swiglu(b, a, ops.upload(up, 100));
      if (first.empty()) first = ops.values(b);
      ASSERT_EQ(ops.values(b), first) << threads << " threads, level '" << level << "'";
    }
    select_simd();
  }
}

TYPED_TEST(Elementwise, FusedBodies) {
  using T = TypeParam;
  RandomValues random(13);
  BackendOps<T> ops;
  ops.use_cache({1, 1, 8});
  ops.begin(Phase::prefill, 6);
  const auto x = random.normals<T>(6 * 16), y = random.normals<T>(6 * 16);
  const RandomTensor norm = random_tensor(WeightType::F32, 16, 1, 1),
                     head_norm = random_tensor(WeightType::F32, 8, 1, 2);
  const RandomTensor q = random_tensor(WeightType::F32, 16, 16, 3),
                     kv = random_tensor(WeightType::F32, 16, 8, 4);

  const Activation sum = ops.upload(x, 6), h = ops.poisoned(6, 16), other = ops.upload(x, 6),
                   want = ops.poisoned(6, 16);
  ops->add_rms_norm(h, sum, ops.upload(y, 6), ops->load(norm.tensor), 1e-6);
  ops->add(other, ops.upload(y, 6));
  ops->rms_norm(want, other, ops->load(norm.tensor), 1e-6);
  EXPECT_EQ(ops.values(sum), ops.values(other));
  EXPECT_EQ(ops.values(h), ops.values(want));

  QkvWeights w;
  w.attn_q = ops->load(q.tensor);
  w.attn_k = ops->load(kv.tensor);
  w.attn_v = ops->load(kv.tensor);
  w.attn_q_norm = w.attn_k_norm = ops->load(head_norm.tensor);
  w.rms_norm_eps = 1e-6;
  const RopeTable table = random_rope(8, 6, false);
  const DeviceRope rope = ops->load_rope(table);
  AttentionShape shape;
  shape.n_head = 2;
  shape.n_head_kv = 1;
  shape.head_dim = 8;
  shape.scale = 1;
  const Activation q_out = ops.poisoned(6, 16), k_out = ops.poisoned(6, 8), v_out = ops.poisoned(6, 8);
  ops->qkv(q_out, k_out, v_out, h, w, rope, shape);
  const Activation q_want = ops.poisoned(6, 16);
  ops->matmul(q_want, w.attn_q, h);
  ops->rms_norm(q_want, q_want, w.attn_q_norm, 1e-6);
  ops->rope(q_want, rope, 8);
  EXPECT_EQ(ops.values(q_out), ops.values(q_want));
  // The first token sees itself alone, so its attention is its value: the cache holds what qkv stored.
  const Activation out = ops.poisoned(6, 16);
  ops->attention(out, q_out, shape);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(ops.values(out)[i], ops.values(v_out)[i % 8]);

  const Activation mlp = ops.poisoned(6, 8), up = ops.poisoned(6, 8), gate = ops.poisoned(6, 8),
                   both = ops.poisoned(6, 8);
  ops->gated_mlp(mlp, up, h, w.attn_k, w.attn_v);
  ops->matmul(gate, w.attn_k, h);
  ops->matmul(both, w.attn_v, h);
  ops->swiglu(gate, gate, both);
  EXPECT_EQ(ops.values(mlp), ops.values(gate));
}

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

TEST(KvCache, ReleaseGivesPagesBack) {
  BackendOps<float> ops;
  ops.use_cache({4, 2, 64});
  EXPECT_EQ(ops.cache().bytes_per_position(), size_t{4 * 2 * 2 * 64 * 4});
  TokenBatch batch;
  batch.tokens.resize(8192);
  batch.pieces = {{3, 0, 8192, 0}};
  ops.cache().reserve(3, 8192);
  ops->begin(batch, ops.cache());
  const Activation kv = ops.upload(std::vector<float>(8192 * 128, 1.0f), 8192);
  const size_t before = resident_bytes();
  for (int32_t layer = 0; layer < 4; ++layer) ops->store_kv(layer, kv, kv);
  EXPECT_GE(resident_bytes(), before + 30'000'000);  // 33.5 MB are in use
  ops.cache().release(3);
  EXPECT_LE(resident_bytes(), before + 3'000'000);
  EXPECT_THROW(ops->begin(batch, ops.cache()), Error);
  EXPECT_THROW(ops.cache().reserve(-1, 5), Error);
}

TEST(Begin, RefusesPiecesThatDoNotFit) {
  BackendOps<float> ops;
  ops.cache().reserve(0, 96);
  TokenBatch batch;
  batch.tokens = {1, 2};
  for (const BatchPiece& piece :
       {BatchPiece{0, 0, 1, 0}, {0, 1, 2, 0}, {0, 0, 3, 0}, {0, 0, 2, 95}, {1, 0, 2, 0}, {0, 0, 2, -1}}) {
    batch.pieces = {piece};
    EXPECT_THROW(ops->begin(batch, ops.cache()), Error);
  }
  batch.pieces = {{0, 0, 2, 94}};
  ops->begin(batch, ops.cache());
  batch.phase = Phase::decode;
  EXPECT_THROW(ops->begin(batch, ops.cache()), Error);
}

TEST(MakeBackend, SaysWhatIsMissing) {
  for (const auto& [device, precision] : {std::pair{"cpu", Precision::tf32},
                                          {"cpu", Precision::bf16},
                                          {"auto", Precision::f32x3},
                                          {"tpu", Precision::f32}}) {
    BackendOptions options;
    options.device = device;
    options.precision = precision;
    EXPECT_THROW(make_backend(options), Error) << device;
  }
  BackendOptions options;
  options.threads = -1;
  EXPECT_THROW(make_backend(options), Error);
  EXPECT_THROW(select_simd("sse9"), Error);
}

TEST(FreeMemory, IsSomeOfTheMachines) {
  BackendOps<float> ops;
  EXPECT_GT(ops->free_memory(), size_t{1} << 20);
  EXPECT_LT(ops->free_memory(), size_t{1} << 50);
}

}  // namespace
}  // namespace logitgate::testing
