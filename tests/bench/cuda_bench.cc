// Speed of the CUDA backend on models of real shape with random weights: prefill, decode, and the ops they
// are made of.
// Contract: `cuda_bench [CASE…]` runs all cases or those whose names contain an argument; each is checked
// (finite logits, and a second pass with the same bits) before it is timed. Times are wall clock around whole
// passes that end in logits on the host, medians after a warm-up.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "kernels/backends.h"
#include "lib/error.h"

namespace logitgate {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

struct ModelShape {
  const char* name;
  int32_t n_layer;
  int64_t n_embd, n_ff;
  int32_t n_head, n_head_kv, head_dim;
  int64_t n_vocab;
  bool tied;
};
constexpr ModelShape kSmall{"0.6B", 28, 1024, 3072, 16, 8, 128, 151936, true};
constexpr ModelShape kLarge{"8B", 36, 4096, 12288, 32, 8, 128, 151936, false};

// Random bytes that are sensible weights of a type, from which every tensor is a window.
class Pool {
 public:
  Pool(WeightType type, size_t n_bytes) : type_(type), bytes_(n_bytes) {
    std::vector<std::thread> threads;
    const size_t unit = weight_type_info(type).block_bytes * size_t{1024}, n_units = n_bytes / unit;
    const size_t n_threads = std::max(1u, std::thread::hardware_concurrency());
    for (size_t t = 0; t < n_threads; ++t)
      threads.emplace_back([&, t] {
        for (size_t u = n_units * t / n_threads; u < n_units * (t + 1) / n_threads; ++u) fill(u * unit, unit);
      });
    for (std::thread& thread : threads) thread.join();
  }
  // The next window: different bytes for every tensor, so that none shares device memory with another.
  Tensor take(const std::string& name, int64_t n_in, int64_t n_out) {
    Tensor tensor;
    tensor.name = name;
    tensor.type = type_;
    tensor.ne = {n_in, n_out, 1, 1};
    tensor.n_bytes = tensor.row_bytes() * static_cast<size_t>(n_out);
    const size_t step = weight_type_info(type_).block_bytes * size_t{512};
    offset_ += step;
    if (offset_ + tensor.n_bytes > bytes_.size())
      fail(ErrorCode::resource, "{}: the pool of weights is too small", name);
    tensor.data = bytes_.data() + offset_;
    return tensor;
  }

 private:
  void fill(size_t offset, size_t n) {
    uint64_t state = offset * 0x9E3779B97F4A7C15ull + 1;
    const auto next = [&] {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      return state;
    };
    std::byte* const to = bytes_.data() + offset;
    if (type_ == WeightType::F32) {
      for (size_t i = 0; i < n; i += 4) {
        const float v = (static_cast<float>(next() >> 40) / 16777216.0f - 0.5f) * 0.05f;
        std::memcpy(to + i, &v, 4);
      }
    } else if (type_ == WeightType::Q8_0) {
      for (size_t i = 0; i < n; i += 34) {
        for (size_t j = 2; j < 34; j += 8) {
          const uint64_t v = next();
          std::memcpy(to + i + j, &v, 8);
        }
        const uint16_t d = static_cast<uint16_t>(0x0a00 + (next() & 0xff));  // about 2e-4
        std::memcpy(to + i, &d, 2);
      }
    } else {
      const bool half = type_ == WeightType::F16;
      for (size_t i = 0; i < n; i += 2) {
        const uint64_t v = next();
        const uint16_t bits = static_cast<uint16_t>((half ? 0x2000 : 0x3c00) | (v & 0x83ff));
        std::memcpy(to + i, &bits, 2);
      }
    }
  }

  WeightType type_;
  std::vector<std::byte> bytes_;
  size_t offset_ = 0;
};

class Discard : public LogitSink {
 public:
  void consume(const LogitChunk& chunk) override {
    rows += chunk.n_rows;
    if (!keep) return;
    const auto take = [&](const auto& values) {
      for (const auto v : values) {
        finite = finite && std::isfinite(v);
        digest = digest * 1099511628211ull + std::bit_cast<uint64_t>(static_cast<double>(v));
      }
    };
    take(chunk.f32);
    take(chunk.f64);
  }
  bool keep = false;
  bool finite = true;
  uint64_t digest = 14695981039346656037ull;
  int64_t rows = 0;
};

struct Layer {
  Weight attn_norm, attn_output, ffn_norm, ffn_gate, ffn_up, ffn_down;
  QkvWeights qkv;
};

// The forward pass of a Qwen3 model of this shape, as lib/arch writes it.
class Model {
 public:
  Model(const ModelShape& shape, WeightType type, Precision precision) : s(shape) {
    backend = make_backend({"cuda", precision, 0});
    const int64_t n_q = int64_t{s.n_head} * s.head_dim, n_kv = int64_t{s.n_head_kv} * s.head_dim;
    const size_t largest = Tensor{"", type, {s.n_embd, s.n_vocab, 1, 1}, nullptr, 0}.row_bytes() *
                           static_cast<size_t>(s.n_vocab);
    Pool pool(type, largest + (size_t{64} << 20));
    Pool norms(WeightType::F32, size_t{16} << 20);
    size_t n_bytes = 0;
    const auto matrix = [&](const char* name, int64_t n_in, int64_t n_out) {
      const Tensor tensor = pool.take(name, n_in, n_out);
      n_bytes += tensor.n_bytes;
      return backend->load(tensor);
    };
    const auto vector = [&](const char* name, int64_t n) { return backend->load(norms.take(name, n, 1)); };
    const auto start = Clock::now();
    token_embd = matrix("token_embd", s.n_embd, s.n_vocab);
    for (int32_t l = 0; l < s.n_layer; ++l) {
      Layer layer;
      layer.attn_norm = vector("attn_norm", s.n_embd);
      layer.qkv.attn_q = matrix("attn_q", s.n_embd, n_q);
      layer.qkv.attn_k = matrix("attn_k", s.n_embd, n_kv);
      layer.qkv.attn_v = matrix("attn_v", s.n_embd, n_kv);
      layer.qkv.attn_q_norm = vector("attn_q_norm", s.head_dim);
      layer.qkv.attn_k_norm = vector("attn_k_norm", s.head_dim);
      layer.qkv.rms_norm_eps = 1e-6;
      layer.attn_output = matrix("attn_output", n_q, s.n_embd);
      layer.ffn_norm = vector("ffn_norm", s.n_embd);
      layer.ffn_gate = matrix("ffn_gate", s.n_embd, s.n_ff);
      layer.ffn_up = matrix("ffn_up", s.n_embd, s.n_ff);
      layer.ffn_down = matrix("ffn_down", s.n_ff, s.n_embd);
      layers.push_back(layer);
    }
    output_norm = vector("output_norm", s.n_embd);
    output = s.tied ? token_embd : matrix("output", s.n_embd, s.n_vocab);
    RopeTable table;
    table.n_rot = s.head_dim;
    table.n_positions = 8192;
    for (int32_t p = 0; p < table.n_positions; ++p)
      for (int32_t i = 0; i < s.head_dim / 2; ++i) {
        const double angle = p * std::pow(1e6, -2.0 * i / s.head_dim);
        table.cos.push_back(std::cos(angle));
        table.sin.push_back(std::sin(angle));
      }
    const double loading = seconds_since(start);
    rope = backend->load_rope(table);
    std::printf("# %s %s: %.2f GB of weights queued in %.2f s, %.1f GB/s\n", s.name,
                std::string(weight_type_info(type).name).c_str(), static_cast<double>(n_bytes) / 1e9, loading,
                static_cast<double>(n_bytes) / 1e9 / loading);
    cache = backend->make_kv_cache({s.n_layer, s.n_head_kv, s.head_dim});
  }

  void reserve(int64_t n_tokens) {
    const auto make = [&](int64_t n_cols) {
      buffers.push_back(backend->allocate(static_cast<size_t>(n_tokens * n_cols) * backend->element_size()));
      return Activation{buffers.back().data(), n_tokens, n_cols};
    };
    const int64_t n_q = int64_t{s.n_head} * s.head_dim, n_kv = int64_t{s.n_head_kv} * s.head_dim;
    x = make(s.n_embd), h = make(s.n_embd), y = make(s.n_embd), last = make(s.n_embd), q = make(n_q),
    attended = make(n_q), k = make(n_kv);
    v = make(n_kv), gate = make(s.n_ff), up = make(s.n_ff);
  }

  void layers_pass(int64_t n) {
    Backend& b = *backend;
    b.embed(x.head(n), token_embd, 1.0);
    b.rms_norm(h.head(n), x.head(n), layers[0].attn_norm, 1e-6);
    for (size_t l = 0; l < layers.size(); ++l) {
      const Layer& layer = layers[l];
      const AttentionShape shape{static_cast<int32_t>(l), s.n_head, s.n_head_kv, s.head_dim,
                                 1 / std::sqrt(static_cast<double>(s.head_dim))};
      b.qkv(q.head(n), k.head(n), v.head(n), h.head(n), layer.qkv, rope, shape);
      b.attention(attended.head(n), q.head(n), shape);
      b.matmul(y.head(n), layer.attn_output, attended.head(n));
      b.add_rms_norm(h.head(n), x.head(n), y.head(n), layer.ffn_norm, 1e-6);
      b.gated_mlp(gate.head(n), up.head(n), h.head(n), layer.ffn_gate, layer.ffn_up);
      b.matmul(y.head(n), layer.ffn_down, gate.head(n));
      if (l + 1 < layers.size())
        b.add_rms_norm(h.head(n), x.head(n), y.head(n), layers[l + 1].attn_norm, 1e-6);
      else
        b.add(x.head(n), y.head(n));
    }
  }
  void head_pass(const std::vector<int32_t>& rows, LogitSink& sink) {
    const Activation picked = last.head(static_cast<int64_t>(rows.size()));
    backend->gather_rows(picked, x, rows);
    backend->rms_norm(picked, picked, output_norm, 1e-6);
    backend->lm_head(output, picked, sink);
  }
  void sync() { (void)backend->read({x.data, 1, 1}); }

  ModelShape s;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<KvCache> cache;
  Weight token_embd, output_norm, output;
  std::vector<Layer> layers;
  DeviceRope rope;
  std::list<Buffer> buffers;
  Activation x, h, y, last, q, attended, k, v, gate, up;
};

std::vector<int32_t> token_ids(int64_t n) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>((i * 7919 + 13) % 150000));
  return ids;
}

const char* name_of(Precision p) {
  return p == Precision::f64 ? "f64" : p == Precision::tf32 ? "tf32" : p == Precision::bf16 ? "bf16" : "f32";
}

struct Check {
  bool good = true;
  std::string text;
};

// Two passes, finite and alike.
Check check(const std::function<void(Discard&)>& pass) {
  Discard a, b;
  a.keep = b.keep = true;
  pass(a);
  pass(b);
  const bool good = a.finite && a.digest == b.digest;
  return {good, good ? "finite, repeatable" : a.finite ? "NOT REPEATABLE" : "NOT FINITE"};
}

void prefill_case(Model& m, const std::string& label, int64_t n_records, int64_t length, bool all_rows,
                  int n_times) {
  const int64_t n = n_records * length;
  TokenBatch batch;
  batch.tokens = token_ids(n);
  for (int32_t r = 0; r < n_records; ++r) {
    m.cache->reserve(r, static_cast<int32_t>(length));
    batch.pieces.push_back({r, static_cast<int32_t>(r * length), static_cast<int32_t>(length), 0});
  }
  std::vector<int32_t> rows;
  for (int64_t t = 0; t < n; ++t)
    if (all_rows || t % length == length - 1) rows.push_back(static_cast<int32_t>(t));
  const auto pass = [&](Discard& sink) {
    m.backend->begin(batch, *m.cache);
    m.layers_pass(n);
    m.head_pass(rows, sink);
  };
  std::vector<int32_t> few(rows.end() - std::min<ptrdiff_t>(8, std::ssize(rows)), rows.end());
  const Check checked = check([&](Discard& sink) {
    m.backend->begin(batch, *m.cache);
    m.layers_pass(n);
    m.head_pass(few, sink);
  });
  Discard sink;
  pass(sink);
  std::vector<double> times, bodies;
  for (int i = 0; i < n_times; ++i) {
    const auto start = Clock::now();
    pass(sink);
    times.push_back(seconds_since(start));
    const auto again = Clock::now();
    m.backend->begin(batch, *m.cache);
    m.layers_pass(n);
    m.sync();
    bodies.push_back(seconds_since(again));
  }
  std::printf("%-44s %9.1f tok/s   %8.2f ms (layers alone %.2f ms)  --rows %s  %s\n", label.c_str(),
              static_cast<double>(n) / median(times), median(times) * 1e3, median(bodies) * 1e3,
              all_rows ? "all" : "last", checked.text.c_str());
}

void decode_case(Model& m, const std::string& label, int32_t n_lanes, int32_t n_steps) {
  for (int32_t lane = 0; lane < n_lanes; ++lane) m.cache->reserve(lane, 512);
  std::vector<int32_t> rows;
  for (int32_t lane = 0; lane < n_lanes; ++lane) rows.push_back(lane);
  std::unique_ptr<Recording> recording;
  const auto step = [&](int32_t position, Discard& sink, bool recorded) {
    TokenBatch batch;
    batch.phase = Phase::decode;
    for (int32_t lane = 0; lane < n_lanes; ++lane) {
      batch.tokens.push_back((position * 31 + lane * 17) % 150000);
      batch.pieces.push_back({lane, lane, 1, position});
    }
    m.backend->begin(batch, *m.cache);
    if (recorded)
      m.backend->replay(recording, [&] { m.layers_pass(n_lanes); });
    else
      m.layers_pass(n_lanes);
    m.head_pass(rows, sink);
  };
  Discard eager, replayed;
  eager.keep = replayed.keep = true;
  for (int32_t p = 0; p < 5; ++p) step(p, eager, false);
  for (int32_t p = 0; p < 5; ++p) step(p, replayed, true);
  const char* const text = !eager.finite                     ? "NOT FINITE"
                           : eager.digest == replayed.digest ? "finite, replay = eager"
                                                             : "REPLAY DIFFERS";
  Discard sink;
  std::vector<double> times, unrecorded;
  for (int32_t p = 5; p < n_steps; ++p) {
    const auto start = Clock::now();
    step(p, sink, true);
    times.push_back(seconds_since(start));
  }
  for (int32_t p = 5; p < 25; ++p) {
    const auto start = Clock::now();
    step(p, sink, false);
    unrecorded.push_back(seconds_since(start));
  }
  std::printf("%-44s %9.1f tok/s   %8.3f ms a step (eager %.3f ms)  --rows all  %s\n", label.c_str(),
              n_lanes / median(times), median(times) * 1e3, median(unrecorded) * 1e3, text);
}

// Single ops, many times: the rate each runs at.
void op_case(Model& m, const std::string& label, double work, const char* unit, int n_times,
             const std::function<void()>& op) {
  op();
  m.sync();
  std::vector<double> times;
  for (int round = 0; round < 3; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < n_times; ++i) op();
    m.sync();
    times.push_back(seconds_since(start) / n_times);
  }
  std::printf("  %-42s %9.3f ms  %8.2f %s\n", label.c_str(), median(times) * 1e3,
              work / median(times) * 1e-12, unit);
}

void prefill_ops(Model& m, int64_t n) {
  TokenBatch batch;
  batch.tokens = token_ids(n);
  m.cache->reserve(0, static_cast<int32_t>(n));
  batch.pieces.push_back({0, 0, static_cast<int32_t>(n), 0});
  m.backend->begin(batch, *m.cache);
  const Layer& layer = m.layers[1];
  const double t = static_cast<double>(n), e = static_cast<double>(m.s.n_embd),
               f = static_cast<double>(m.s.n_ff);
  const double n_q = m.s.n_head * m.s.head_dim, n_kv = m.s.n_head_kv * m.s.head_dim;
  const AttentionShape shape{1, m.s.n_head, m.s.n_head_kv, m.s.head_dim, 0.1};
  op_case(m, "qkv", 2 * t * e * (n_q + 2 * n_kv), "TFLOP/s", 5, [&] {
    m.backend->qkv(m.q.head(n), m.k.head(n), m.v.head(n), m.h.head(n), layer.qkv, m.rope, shape);
  });
  op_case(m, "attention", 2 * t * t * n_q, "TFLOP/s", 5,
          [&] { m.backend->attention(m.attended.head(n), m.q.head(n), shape); });
  op_case(m, "attn_output", 2 * t * e * n_q, "TFLOP/s", 5,
          [&] { m.backend->matmul(m.y.head(n), layer.attn_output, m.attended.head(n)); });
  op_case(m, "gate, up, swiglu", 4 * t * e * f, "TFLOP/s", 5, [&] {
    m.backend->gated_mlp(m.gate.head(n), m.up.head(n), m.h.head(n), layer.ffn_gate, layer.ffn_up);
  });
  op_case(m, "ffn_down", 2 * t * e * f, "TFLOP/s", 5,
          [&] { m.backend->matmul(m.y.head(n), layer.ffn_down, m.gate.head(n)); });
  const double element = static_cast<double>(m.backend->element_size());
  op_case(m, "add_rms_norm", 4 * t * e * element, "TB/s", 20,
          [&] { m.backend->add_rms_norm(m.h.head(n), m.x.head(n), m.y.head(n), layer.ffn_norm, 1e-6); });
  op_case(m, "swiglu", 3 * t * f * element, "TB/s", 20,
          [&] { m.backend->swiglu(m.gate.head(n), m.gate.head(n), m.up.head(n)); });
}

void decode_ops(Model& m, int32_t n, WeightType type) {
  TokenBatch batch;
  batch.phase = Phase::decode;
  for (int32_t lane = 0; lane < n; ++lane) {
    m.cache->reserve(lane, 512);
    batch.tokens.push_back(lane);
    batch.pieces.push_back({lane, lane, 1, 200});
  }
  m.backend->begin(batch, *m.cache);
  const WeightTypeInfo& info = weight_type_info(type);
  const double byte = static_cast<double>(info.block_bytes) / static_cast<double>(info.block_size);
  const double e = static_cast<double>(m.s.n_embd), f = static_cast<double>(m.s.n_ff);
  const double n_q = m.s.n_head * m.s.head_dim, n_kv = m.s.n_head_kv * m.s.head_dim;
  const AttentionShape shape{1, m.s.n_head, m.s.n_head_kv, m.s.head_dim, 0.1};
  size_t l = 0;  // another layer each time, so that weights come from memory
  const auto next = [&]() -> const Layer& { return m.layers[l++ % m.layers.size()]; };
  op_case(m, "qkv", byte * e * (n_q + 2 * n_kv), "TB/s", 72, [&] {
    m.backend->qkv(m.q.head(n), m.k.head(n), m.v.head(n), m.h.head(n), next().qkv, m.rope, shape);
  });
  op_case(m, "attention at 201", 2 * 201 * n_kv * 4, "TB/s", 72,
          [&] { m.backend->attention(m.attended.head(n), m.q.head(n), shape); });
  op_case(m, "attn_output", byte * e * n_q, "TB/s", 72,
          [&] { m.backend->matmul(m.y.head(n), next().attn_output, m.attended.head(n)); });
  op_case(m, "gated_mlp", 2 * byte * e * f, "TB/s", 72, [&] {
    const Layer& layer = next();
    m.backend->gated_mlp(m.gate.head(n), m.up.head(n), m.h.head(n), layer.ffn_gate, layer.ffn_up);
  });
  op_case(m, "ffn_down", byte * e * f, "TB/s", 72,
          [&] { m.backend->matmul(m.y.head(n), next().ffn_down, m.gate.head(n)); });
  op_case(m, "add_rms_norm", 0, "", 72,
          [&] { m.backend->add_rms_norm(m.h.head(n), m.x.head(n), m.y.head(n), next().ffn_norm, 1e-6); });
}

struct Case {
  std::string name;
  std::function<void()> run;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto prefill = [&](const ModelShape& shape, WeightType type, Precision p, int n_times) {
    const std::string name =
        fmt::format("prefill-{}-{}-{}", shape.name, weight_type_info(type).name, name_of(p));
    all.push_back({name, [=, s = shape] {
                     Model m(s, type, p);
                     m.reserve(2048);
                     prefill_case(m, name + " T=2048", 1, 2048, true, n_times);
                     prefill_case(m, name + " T=2048", 1, 2048, false, n_times);
                     if (s.n_embd == 1024) prefill_case(m, name + " 16x128", 16, 128, true, n_times);
                     prefill_ops(m, 2048);
                   }});
  };
  const auto decode = [&](const ModelShape& shape, WeightType type, Precision p, bool lanes) {
    const std::string name =
        fmt::format("decode-{}-{}-{}", shape.name, weight_type_info(type).name, name_of(p));
    all.push_back({name, [=, s = shape] {
                     Model m(s, type, p);
                     m.reserve(16);
                     decode_case(m, name + " lanes=1", 1, 160);
                     decode_ops(m, 1, type);
                     if (!lanes) return;
                     decode_case(m, name + " lanes=8", 8, 160);
                     decode_ops(m, 8, type);
                   }});
  };
  prefill(kLarge, WeightType::BF16, Precision::f32, 3);
  prefill(kLarge, WeightType::BF16, Precision::f64, 2);
  prefill(kLarge, WeightType::BF16, Precision::tf32, 5);
  prefill(kLarge, WeightType::BF16, Precision::bf16, 5);
  prefill(kSmall, WeightType::F32, Precision::f32, 5);
  prefill(kSmall, WeightType::F32, Precision::tf32, 5);
  decode(kLarge, WeightType::Q8_0, Precision::f32, true);
  decode(kLarge, WeightType::F16, Precision::f32, false);
  decode(kLarge, WeightType::F32, Precision::f32, false);
  return all;
}

}  // namespace
}  // namespace logitgate

int main(int argc, char** argv) {
  try {
    for (const auto& c : logitgate::cases()) {
      bool chosen = argc == 1;
      for (int i = 1; i < argc; ++i) chosen = chosen || c.name.find(argv[i]) != std::string::npos;
      if (!chosen) continue;
      c.run();
      std::fflush(stdout);
    }
  } catch (const logitgate::Error& error) {
    std::fprintf(stderr, "cuda_bench: %s\n", error.what());
    return 2;
  }
  return 0;
}
