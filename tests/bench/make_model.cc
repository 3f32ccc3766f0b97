// Writes a GGUF model of a real model's shape with random weights, for timing: make_model SHAPE TYPE OUT.gguf.
// Contract: the same arguments give the same bytes; weights are uniform with variance 1/n_in, so that activations keep
// their size and logits are neither flat nor infinite. Not part of the product.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "formats/quant/weight_type.h"

namespace logitgate {
namespace {

struct Shape {
  const char* name;
  uint32_t n_layer, n_embd, n_ff, n_head, n_head_kv, head_dim, n_vocab, n_ctx;
  bool tied;
};
constexpr Shape kShapes[] = {
    {"tiny", 2, 128, 192, 4, 2, 64, 272, 1024, false},
    {"qwen3-0.6b", 28, 1024, 3072, 16, 8, 128, 151936, 40960, true},
    {"qwen3-8b", 36, 4096, 12288, 32, 8, 128, 151936, 40960, false},
};

struct TensorPlan {
  std::string name;
  std::vector<uint64_t> ne;
  WeightType type;
  uint64_t offset = 0, n_bytes = 0;
};

uint64_t splitmix64(uint64_t& state) {
  uint64_t z = (state += 0x9E3779B97F4A7C15ull);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
// In [-1, 1).
float uniform(uint64_t& state) {
  return static_cast<float>(static_cast<int32_t>(splitmix64(state) >> 40) - (1 << 23)) * 0x1p-23f;
}

// IEEE half of a normal value, rounded toward zero: enough for random weights.
uint16_t to_half(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const int32_t exponent = static_cast<int32_t>(bits >> 23 & 0xff) - 127 + 15;
  if (exponent <= 0) return static_cast<uint16_t>(sign);
  return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 0x3ff));
}

void fill_row(WeightType type, std::byte* out, uint64_t n, float amplitude, bool norm, uint64_t seed) {
  uint64_t state = seed;
  const auto value = [&] { return norm ? 1.0f + 0.1f * uniform(state) : amplitude * uniform(state); };
  for (uint64_t i = 0; i < n; ++i) {
    if (type == WeightType::F32) {
      const float x = value();
      std::memcpy(out + 4 * i, &x, 4);
    } else if (type == WeightType::F16) {
      const uint16_t x = to_half(value());
      std::memcpy(out + 2 * i, &x, 2);
    } else if (type == WeightType::BF16) {
      const float x = value();
      std::memcpy(out + 2 * i, reinterpret_cast<const char*>(&x) + 2, 2);
    } else {  // Q8_0
      std::byte* block = out + i / 32 * 34;
      if (i % 32 == 0) {
        const uint16_t d = to_half(amplitude / 127.0f * (1.0f + 0.2f * uniform(state)));
        std::memcpy(block, &d, 2);
      }
      block[2 + i % 32] = static_cast<std::byte>(std::lround(127.0f * uniform(state)));
    }
  }
}

std::vector<TensorPlan> plan(const Shape& s, WeightType matrix) {
  std::vector<TensorPlan> tensors;
  const auto add = [&](const std::string& name, std::vector<uint64_t> ne) {
    const WeightType type = ne.size() == 1 ? WeightType::F32 : matrix;
    tensors.push_back({name + ".weight", std::move(ne), type});
  };
  const uint64_t q = uint64_t{s.n_head} * s.head_dim, kv = uint64_t{s.n_head_kv} * s.head_dim;
  add("token_embd", {s.n_embd, s.n_vocab});
  for (uint32_t l = 0; l < s.n_layer; ++l) {
    const std::string blk = "blk." + std::to_string(l) + ".";
    add(blk + "attn_norm", {s.n_embd});
    add(blk + "attn_q", {s.n_embd, q});
    add(blk + "attn_k", {s.n_embd, kv});
    add(blk + "attn_v", {s.n_embd, kv});
    add(blk + "attn_q_norm", {s.head_dim});
    add(blk + "attn_k_norm", {s.head_dim});
    add(blk + "attn_output", {q, s.n_embd});
    add(blk + "ffn_norm", {s.n_embd});
    add(blk + "ffn_gate", {s.n_embd, s.n_ff});
    add(blk + "ffn_up", {s.n_embd, s.n_ff});
    add(blk + "ffn_down", {s.n_ff, s.n_embd});
  }
  add("output_norm", {s.n_embd});
  if (!s.tied) add("output", {s.n_embd, s.n_vocab});
  uint64_t offset = 0;
  for (TensorPlan& t : tensors) {
    const WeightTypeInfo& info = weight_type_info(t.type);
    t.n_bytes = t.ne[0] / info.block_size * info.block_bytes * (t.ne.size() > 1 ? t.ne[1] : 1);
    t.offset = offset;
    offset += (t.n_bytes + 31) / 32 * 32;
  }
  return tensors;
}

struct Bytes {
  std::string text;
  uint64_t n_keys = 0;

  void raw(const void* data, size_t n) { text.append(static_cast<const char*>(data), n); }
  template <class T>
  void put(T value) {
    raw(&value, sizeof value);
  }
  void string(const std::string& value) {
    put<uint64_t>(value.size());
    raw(value.data(), value.size());
  }
  template <class T>
  void key(const std::string& name, uint32_t type, T value) {
    string(name);
    put(type);
    if constexpr (std::is_same_v<T, const char*>)
      string(value);
    else
      put(value);
    ++n_keys;
  }
};

std::string make_header(const Shape& s, const std::vector<TensorPlan>& tensors) {
  constexpr uint32_t kU32 = 4, kF32 = 6, kString = 8;  // GGUF's type ids
  Bytes keys;
  keys.key("general.architecture", kString, "qwen3");
  keys.key("general.name", kString, s.name);
  keys.key("general.quantization_version", kU32, 2u);
  keys.key("tokenizer.ggml.model", kString, "none");
  keys.key("qwen3.vocab_size", kU32, s.n_vocab);
  keys.key("qwen3.block_count", kU32, s.n_layer);
  keys.key("qwen3.context_length", kU32, s.n_ctx);
  keys.key("qwen3.embedding_length", kU32, s.n_embd);
  keys.key("qwen3.feed_forward_length", kU32, s.n_ff);
  keys.key("qwen3.attention.head_count", kU32, s.n_head);
  keys.key("qwen3.attention.head_count_kv", kU32, s.n_head_kv);
  keys.key("qwen3.attention.key_length", kU32, s.head_dim);
  keys.key("qwen3.attention.value_length", kU32, s.head_dim);
  keys.key("qwen3.attention.layer_norm_rms_epsilon", kF32, 1e-6f);
  keys.key("qwen3.rope.freq_base", kF32, 1e6f);
  Bytes file;
  file.raw("GGUF", 4);
  file.put<uint32_t>(3);
  file.put<uint64_t>(tensors.size());
  file.put<uint64_t>(keys.n_keys);
  file.text += keys.text;
  for (const TensorPlan& t : tensors) {
    file.string(t.name);
    file.put(static_cast<uint32_t>(t.ne.size()));
    for (uint64_t n : t.ne) file.put(n);
    file.put(static_cast<uint32_t>(t.type));
    file.put(t.offset);
  }
  file.text.resize((file.text.size() + 31) / 32 * 32, '\0');
  return file.text;
}

void write_all(std::FILE* out, const void* data, size_t n) {
  if (std::fwrite(data, 1, n, out) == n) return;
  std::perror("make_model: write");
  std::exit(2);
}

void write_tensor(std::FILE* out, const TensorPlan& t, uint64_t seed) {
  std::vector<std::byte> bytes((t.n_bytes + 31) / 32 * 32);
  const uint64_t n_rows = t.ne.size() > 1 ? t.ne[1] : 1, row_bytes = t.n_bytes / n_rows;
  const float amplitude = std::sqrt(3.0f / static_cast<float>(t.ne[0]));
  std::vector<std::jthread> workers;
  const uint64_t n = std::max(1u, std::thread::hardware_concurrency());
  for (uint64_t w = 0; w < n; ++w)
    workers.emplace_back([&, w] {
      for (uint64_t r = w; r < n_rows; r += n)
        fill_row(t.type, &bytes[r * row_bytes], t.ne[0], amplitude, t.ne.size() == 1,
                 seed + r * 0x632BE59BD9B4E019ull);
    });
  workers.clear();
  write_all(out, bytes.data(), bytes.size());
}

int run(int argc, char** argv) {
  const Shape* shape = nullptr;
  const WeightTypeInfo* type = nullptr;
  if (argc == 4) {
    for (const Shape& s : kShapes)
      if (std::strcmp(s.name, argv[1]) == 0) shape = &s;
    for (WeightType t : {WeightType::F32, WeightType::F16, WeightType::BF16, WeightType::Q8_0})
      if (weight_type_info(t).name == argv[2]) type = &weight_type_info(t);
  }
  if (shape == nullptr || type == nullptr) {
    std::fprintf(stderr, "usage: make_model tiny|qwen3-0.6b|qwen3-8b F32|F16|BF16|Q8_0 OUT.gguf\n");
    return 2;
  }
  std::FILE* out = std::fopen(argv[3], "wb");
  if (out == nullptr) {
    std::perror(argv[3]);
    return 2;
  }
  const std::vector<TensorPlan> tensors = plan(*shape, type->type);
  const std::string header = make_header(*shape, tensors);
  write_all(out, header.data(), header.size());
  for (size_t t = 0; t < tensors.size(); ++t) write_tensor(out, tensors[t], (t + 1) * 0xD1B54A32D192ED03ull);
  return std::fclose(out) == 0 ? 0 : 2;
}

}  // namespace
}  // namespace logitgate

int main(int argc, char** argv) { return logitgate::run(argc, argv); }
