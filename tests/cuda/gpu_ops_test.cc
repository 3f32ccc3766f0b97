// The other ops on the GPU: right within their rounding; fused ops equal to their bodies and recorded passes
// to eager ones, bit by bit.
// Contract: bounds are a few roundings of each term's magnitude, as each test says.
#include "tests/support/gpu_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>

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

RopeTable rope_table(int32_t n_rot, int32_t n_positions, bool interleaved) {
  RopeTable table;
  table.n_rot = n_rot;
  table.n_positions = n_positions;
  table.interleaved = interleaved;
  for (int32_t p = 0; p < n_positions; ++p) {
    for (int32_t i = 0; i < n_rot / 2; ++i) {
      const double angle = p * std::pow(10000.0, -2.0 * i / n_rot);
      table.cos.push_back(std::cos(angle));
      table.sin.push_back(std::sin(angle));
    }
  }
  return table;
}

TEST(GpuOp, Embed) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    GpuOps ops(precision);
    std::list<RandomTensor> tensors;  // a tensor's bytes live as long as the backend that loaded them
    for (const WeightType type : kTypes) {
      for (const int64_t n_in : {32, 96, 1056}) {
        tensors.push_back(random_tensor(type, n_in, 50, 3));
        const RandomTensor& random = tensors.back();
        const auto w = reference::dequantise(on_host(random.tensor));
        const Weight weight = ops->load(random.tensor);
        const std::vector<int32_t> tokens = {49, 0, 7, 7, 31};
        ops.begin(Phase::prefill, 5, tokens);
        const Activation x = ops.poisoned(5, static_cast<size_t>(n_in));
        ops->embed(x, weight, 1.5);
        std::vector<double> want, bound;
        for (const int32_t t : tokens) {
          for (int64_t i = 0; i < n_in; ++i) {
            want.push_back(1.5 * w[static_cast<size_t>(t * n_in + i)]);
            bound.push_back(std::fabs(want.back()) * storage_epsilon(precision));
          }
        }
        expect_close(ops.values(x), want, bound,
                     std::string("embed ") + std::string(weight_type_info(type).name));
      }
    }
  }
}

TEST(GpuOp, RmsNormOfRowsAndHeads) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    GpuOps ops(precision);
    std::list<RandomTensor> tensors;
    for (const size_t n : {1, 5, 32, 33, 128, 255, 256, 257, 1000, 4096}) {
      for (const size_t groups : {1, 2, 3}) {
        tensors.push_back(random_tensor(WeightType::F32, static_cast<int64_t>(n), 1, 9));
        const RandomTensor& random = tensors.back();
        const auto w = reference::dequantise(on_host(random.tensor));
        const std::vector<double> x = normals(7 * groups * n, 21 + n);
        ops.begin(Phase::prefill, 7);
        const Activation y = ops.poisoned(7, groups * n);
        const Weight weight = ops->load(random.tensor);
        const Activation in = ops.upload(x, 7);
        ops->rms_norm(y, in, weight, 1e-6);
        const auto want = reference::rms_norm(x, w, 1e-6);
        std::vector<double> bound;
        for (const double v : want)
          bound.push_back(std::fabs(v) * (static_cast<double>(n) / 32 + 12) * storage_epsilon(precision));
        const auto got = ops.values(y);
        expect_close(got, want, bound, fmt::format("rms_norm n={} groups={}", n, groups));
        ops->rms_norm(in, in, weight, 1e-6);
        EXPECT_EQ(ops.values(in) == got, true) << "in place";
        ops.drop();
      }
    }
  }
}

TEST(GpuOp, RopeOfBothPairings) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    GpuOps ops(precision);
    for (const bool interleaved : {false, true}) {
      for (const int32_t head_dim : {4, 10, 64, 128, 256}) {
        for (const int32_t n_rot : {head_dim, head_dim / 2 / 2 * 2}) {
          const RopeTable table = rope_table(n_rot, 40, interleaved);
          const std::vector<double> x = normals(static_cast<size_t>(33 * 3 * head_dim), 5);
          ops.begin(Phase::prefill, 33);
          const Activation in = ops.upload(x, 33);
          const DeviceRope rope = ops->load_rope(table);
          ops->rope(in, rope, head_dim);
          std::vector<int32_t> positions(33);
          for (size_t i = 0; i < 33; ++i) positions[i] = static_cast<int32_t>(i);
          const auto want = reference::rope(x, table, static_cast<size_t>(head_dim), positions);
          const std::vector<double> bound(want.size(), 6 * 6 * storage_epsilon(precision));
          expect_close(ops.values(in), want, bound, fmt::format("rope {} of {}", n_rot, head_dim));
          ops.drop();
        }
      }
    }
  }
}

TEST(GpuOp, SwigluAddAndGather) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    GpuOps ops(precision);
    const double eps = storage_epsilon(precision);
    const std::vector<double> a = normals(7 * 301, 1), b = normals(7 * 301, 2);
    ops.begin(Phase::prefill, 7);
    const Activation gate = ops.upload(a, 7), up = ops.upload(b, 7), y = ops.poisoned(7, 301);
    ops->swiglu(y, gate, up);
    const auto want = reference::swiglu(a, b);
    std::vector<double> bound;
    for (const double v : want) bound.push_back(8 * eps * std::fabs(v) + 1e-300);
    const auto swiglu = ops.values(y);
    expect_close(swiglu, want, bound, "swiglu");
    ops->swiglu(gate, gate, up);
    EXPECT_EQ(ops.values(gate) == swiglu, true);
    const Activation x = ops.upload(a, 7);
    ops->add(x, up);
    std::vector<double> sum(a.size()), sum_bound(a.size());
    for (size_t i = 0; i < a.size(); ++i) {
      sum[i] = a[i] + b[i];
      sum_bound[i] = eps * std::fabs(sum[i]);
    }
    expect_close(ops.values(x), sum, sum_bound, "add");
    const Activation rows = ops.poisoned(4, 301);
    const std::vector<int32_t> picked = {6, 0, 3, 3};
    ops->gather_rows(rows, up, picked);
    std::vector<double> gathered;
    for (const int32_t r : picked)
      gathered.insert(gathered.end(), b.begin() + r * 301, b.begin() + (r + 1) * 301);
    EXPECT_EQ(ops.values(rows) == gathered, true);
  }
}

TEST(GpuOp, AddRmsNormIsItsBody) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    GpuOps ops(precision);
    std::list<RandomTensor> tensors;
    for (const size_t n : {3, 64, 256, 300, 4096}) {
      tensors.push_back(random_tensor(WeightType::F32, static_cast<int64_t>(n), 1, 9));
      const RandomTensor& random = tensors.back();
      const Weight w = ops->load(random.tensor);
      ops.begin(Phase::prefill, 5);
      const std::vector<double> a = normals(5 * n, 1), b = normals(5 * n, 2);
      const Activation x1 = ops.upload(a, 5), x2 = ops.upload(a, 5), y = ops.upload(b, 5),
                       h1 = ops.poisoned(5, n), h2 = ops.poisoned(5, n);
      ops->add_rms_norm(h1, x1, y, w, 1e-5);
      ops->Backend::add_rms_norm(h2, x2, y, w, 1e-5);
      EXPECT_EQ(ops.values(h1) == ops.values(h2), true) << n;
      EXPECT_EQ(ops.values(x1) == ops.values(x2), true) << n;
      ops.drop();
    }
  }
}

struct Layer {
  std::vector<RandomTensor> tensors;
  QkvWeights weights;
  DeviceRope rope;
};
Layer make_layer(GpuOps& ops, int64_t n_embd, int32_t n_head, int32_t n_head_kv, int32_t head_dim,
                 WeightType type, bool norms, bool interleaved) {
  Layer layer;
  layer.tensors.reserve(5);
  const auto load = [&](WeightType t, int64_t n_in, int64_t n_out, uint64_t seed) {
    layer.tensors.push_back(random_tensor(t, n_in, n_out, seed));
    return ops->load(layer.tensors.back().tensor);
  };
  layer.weights.attn_q = load(type, n_embd, n_head * head_dim, 1);
  layer.weights.attn_k = load(type, n_embd, n_head_kv * head_dim, 2);
  layer.weights.attn_v = load(type, n_embd, n_head_kv * head_dim, 3);
  if (norms) {
    layer.weights.attn_q_norm = load(WeightType::F32, head_dim, 1, 4);
    layer.weights.attn_k_norm = load(WeightType::F32, head_dim, 1, 5);
  }
  layer.weights.rms_norm_eps = 1e-6;
  layer.rope = ops->load_rope(rope_table(head_dim, 64, interleaved));
  return layer;
}

TEST(GpuOp, QkvIsItsBody) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      for (const int32_t head_dim : {16, 40, 128}) {
        for (const bool norms : {true, false}) {
          GpuOps ops(precision);
          const WeightType type = norms ? WeightType::Q8_0 : WeightType::BF16;
          const Layer layer = make_layer(ops, 96, 4, 2, head_dim, type, norms, !norms);
          const AttentionShape shape{1, 4, 2, head_dim, 0.1};
          ops.use_cache({2, 2, head_dim});
          const std::vector<double> x = normals(5 * 96, 77);
          const auto n_q = static_cast<size_t>(4 * head_dim), n_kv = static_cast<size_t>(2 * head_dim);
          std::vector<double> q[2], out[2];
          for (const bool fused : {true, false}) {
            ops.begin(phase, 5);
            const Activation qs = ops.poisoned(5, n_q), k = ops.poisoned(5, n_kv), v = ops.poisoned(5, n_kv),
                             y = ops.poisoned(5, n_q);
            if (fused)
              ops->qkv(qs, k, v, ops.upload(x, 5), layer.weights, layer.rope, shape);
            else
              ops->Backend::qkv(qs, k, v, ops.upload(x, 5), layer.weights, layer.rope, shape);
            ops->attention(y, qs, shape);  // shows what the cache holds
            q[fused] = ops.values(qs);
            out[fused] = ops.values(y);
            ops.drop();
          }
          EXPECT_EQ(q[0] == q[1], true) << precision_name(precision) << " head_dim " << head_dim;
          EXPECT_EQ(out[0] == out[1], true) << precision_name(precision) << " head_dim " << head_dim;
          for (const double value : out[1]) ASSERT_FALSE(std::isnan(value));
        }
      }
    }
  }
}

TEST(GpuOp, GatedMlpIsItsBody) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      for (const WeightType type : kTypes) {
        GpuOps ops(precision);
        const RandomTensor gate = random_tensor(type, 320, 77, 1), up = random_tensor(type, 320, 77, 2);
        const Weight w_gate = ops->load(gate.tensor), w_up = ops->load(up.tensor);
        for (const int32_t n : {1, 3, 11}) {
          ops.begin(phase, n);
          auto x = normals(static_cast<size_t>(n) * 320, 4);
          for (double& v : x) v = static_cast<float>(v / 16);
          const auto rows = static_cast<size_t>(n);
          const Activation in = ops.upload(x, rows), h1 = ops.poisoned(rows, 77), h2 = ops.poisoned(rows, 77),
                           scratch = ops.poisoned(rows, 77);
          ops->gated_mlp(h1, scratch, in, w_gate, w_up);
          ops->Backend::gated_mlp(h2, scratch, in, w_gate, w_up);
          const auto got = ops.values(h1);
          EXPECT_EQ(got == ops.values(h2), true)
              << precision_name(precision) << " " << weight_type_info(type).name << " " << n;
          for (const double value : got) ASSERT_FALSE(std::isnan(value));
          ops.drop();
        }
      }
    }
  }
}

class Collect : public LogitSink {
 public:
  void consume(const LogitChunk& chunk) override {
    EXPECT_EQ(chunk.first_row, rows);
    rows += chunk.n_rows;
    chunks++;
    values.insert(values.end(), chunk.f32.begin(), chunk.f32.end());
    values.insert(values.end(), chunk.f64.begin(), chunk.f64.end());
  }
  std::vector<double> values;
  int64_t rows = 0;
  int chunks = 0;
};

// The head in chunks gives what one product gives. 151,936 columns make several chunks of the larger counts.
TEST(GpuOp, LmHeadInChunks) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      GpuOps ops(precision);
      const int64_t n_vocab = 151936;
      const RandomTensor random = random_tensor(WeightType::F16, 32, n_vocab, 6);
      const Weight w = ops->load(random.tensor);
      for (const size_t n : {size_t{1}, size_t{3}, phase == Phase::prefill ? size_t{1100} : size_t{9}}) {
        ops.begin(phase, 1);
        const Activation x = ops.upload(normals(n * 32, 8), n);
        Collect sink;
        ops->lm_head(w, x, sink);
        EXPECT_EQ(sink.rows, static_cast<int64_t>(n));
        EXPECT_TRUE(n < 1100 || sink.chunks >= 3) << sink.chunks;
        const Activation y = ops.poisoned(n, static_cast<size_t>(n_vocab));
        ops->matmul(y, w, x);
        EXPECT_EQ(sink.values == ops.values(y), true) << precision_name(precision) << " " << n;
        ops.drop();
      }
    }
  }
}

// A decode step recorded and replayed gives the bits of its ops called one by one, over growing positions and
// changing lanes.
TEST(GpuOp, ReplayIsEager) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    const int32_t head_dim = 32, n_steps = 300;
    std::vector<double> results[2];
    for (const bool recorded : {false, true}) {
      GpuOps ops(precision);
      const RandomTensor table = random_tensor(WeightType::F16, 96, 20, 12);
      const Weight embd = ops->load(table.tensor);
      const Layer layer = make_layer(ops, 96, 4, 2, head_dim, WeightType::Q8_0, true, false);
      const DeviceRope rope = ops->load_rope(rope_table(head_dim, 512, false));
      const AttentionShape shape{0, 4, 2, head_dim, 0.2};
      ops.use_cache({1, 2, head_dim});
      const Activation x = ops.poisoned(3, 96), q = ops.poisoned(3, 128), k = ops.poisoned(3, 64),
                       v = ops.poisoned(3, 64), y = ops.poisoned(3, 128);
      for (int32_t slot = 0; slot < 3; ++slot) ops.cache().reserve(slot, n_steps);
      std::unique_ptr<Recording> recordings[4];
      for (int32_t step = 0; step < n_steps; ++step) {
        TokenBatch batch;
        batch.phase = Phase::decode;
        const int32_t n = step < 200 ? 3 : 2;
        for (int32_t i = 0; i < n; ++i) {
          batch.tokens.push_back((step * 7 + i * 3) % 20);
          batch.pieces.push_back({i, i, 1, step});
        }
        ops->begin(batch, ops.cache());
        const auto pass = [&] {
          ops->embed(x.head(n), embd, 1.0);
          ops->qkv(q.head(n), k.head(n), v.head(n), x.head(n), layer.weights, rope, shape);
          ops->attention(y.head(n), q.head(n), shape);
        };
        if (recorded)
          ops->replay(recordings[n], pass);
        else
          pass();
        const auto out = ops.values(y.head(n));
        results[recorded].insert(results[recorded].end(), out.begin(), out.end());
      }
    }
    EXPECT_EQ(results[0] == results[1], true) << precision_name(precision);
  }
}

TEST(GpuOp, ErrorsAreOneLineAndHelp) {
  LOGITGATE_NEEDS_GPU();
  const auto message = [](auto&& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("no error");
  };
  EXPECT_NE(message([] {
              (void)make_backend({"cuda:99", Precision::f32, 0});
            }).find("--device cuda:99"),
            std::string::npos);
  EXPECT_NE(message([] {
              (void)make_backend({"cuda", Precision::f32x3, 0});
            }).find("f32x3"),
            std::string::npos);
  GpuOps ops(Precision::f32);
  const std::string out_of_memory = message([&] { (void)ops->allocate(size_t{1} << 50); });
  EXPECT_NE(out_of_memory.find("out of GPU memory"), std::string::npos) << out_of_memory;
  EXPECT_NE(out_of_memory.find("--batch-tokens"), std::string::npos) << out_of_memory;
  EXPECT_EQ(out_of_memory.find('\n'), std::string::npos);
  TokenBatch past;
  past.tokens = {0, 0};
  past.pieces = {{0, 0, 2, 1 << 20}};
  ops.cache().reserve(0, 16);
  EXPECT_NE(message([&] { ops->begin(past, ops.cache()); }).find("does not fit its KV slot"),
            std::string::npos);
  std::printf("%s\n", out_of_memory.c_str());
}

}  // namespace
}  // namespace logitgate::testing
