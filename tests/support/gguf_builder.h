// Builds GGUF files in memory for tests: any metadata and tensors, and tiny random Qwen3 models of any shape.
// Contract: what bytes() returns is a valid file as long as the entries are; equal calls give equal bytes.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "formats/quant/all.h"
#include "formats/quant/weight_type.h"

namespace logitgate::testing {

// A value's bytes, as little-endian memory holds them.
template <class T>
std::string encode(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}
inline std::string encode_text(const std::string& text) { return encode<uint64_t>(text.size()) + text; }

// GGUF's value types.
enum GgufTypeId : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

// An array value: element type, count, elements' bytes.
inline std::string encode_array(uint32_t element_type, uint64_t n, const std::string& elements) {
  return encode(element_type) + encode(n) + elements;
}

// The half nearest to x, ties to even.
inline uint16_t f16_from_float(float x) {
  const auto bits = encode(x);
  uint32_t word = 0;
  std::memcpy(&word, bits.data(), 4);
  const auto sign = static_cast<uint16_t>((word >> 16) & 0x8000);
  const double magnitude = std::fabs(static_cast<double>(x));
  if (std::isnan(x)) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 65520.0) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x1p-14)
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24)));
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  const auto rounded =
      static_cast<uint32_t>(std::nearbyint(fraction * 2048.0));  // may carry into the exponent
  return static_cast<uint16_t>(sign | (static_cast<uint32_t>(exponent + 13) * 1024 + rounded));
}

inline uint16_t bf16_from_float(float x) {
  const std::string bits = encode(x);
  uint32_t word = 0;
  std::memcpy(&word, bits.data(), 4);
  return static_cast<uint16_t>((word + 0x7fff + ((word >> 16) & 1)) >> 16);
}

inline std::string encode_q8_0(const std::vector<float>& row) {
  std::string bytes;
  for (size_t first = 0; first < row.size(); first += 32) {
    float largest = 0;
    for (size_t i = 0; i < 32; ++i) largest = std::fmax(largest, std::fabs(row[first + i]));
    BlockQ8_0 block{};
    block.d = f16_from_float(largest / 127.0f);
    const float scale = float_from_f16(block.d);
    for (size_t i = 0; i < 32; ++i) {
      const float q =
          scale == 0 ? 0.0f : std::fmin(std::fmax(std::nearbyint(row[first + i] / scale), -127.0f), 127.0f);
      block.qs[i] = static_cast<int8_t>(q);
    }
    bytes += encode(block);
  }
  return bytes;
}

// Weights in the file's encoding; F32, F16, BF16 and Q8_0 (rows of a multiple of 32).
inline std::string encode_weights(WeightType type, const std::vector<float>& weights) {
  if (type == WeightType::Q8_0) return encode_q8_0(weights);
  std::string bytes;
  for (const float w : weights) {
    switch (type) {
      case WeightType::F32:
        bytes += encode(w);
        break;
      case WeightType::F16:
        bytes += encode(f16_from_float(w));
        break;
      case WeightType::BF16:
        bytes += encode(bf16_from_float(w));
        break;
      default:
        throw std::invalid_argument("encode_weights: no encoder for this type");
    }
  }
  return bytes;
}

class GgufBuilder {
 public:
  GgufBuilder& version(uint32_t version) { return version_ = version, *this; }
  // A metadata entry of any type from the bytes of its value.
  GgufBuilder& entry(const std::string& key, uint32_t type, const std::string& value) {
    entries_ += encode_text(key) + encode(type) + value;
    ++n_entries_;
    return *this;
  }
  GgufBuilder& u16(const std::string& key, uint16_t value) { return entry(key, kU16, encode(value)); }
  GgufBuilder& i32(const std::string& key, int32_t value) { return entry(key, kI32, encode(value)); }
  GgufBuilder& u32(const std::string& key, uint32_t value) { return entry(key, kU32, encode(value)); }
  GgufBuilder& u64(const std::string& key, uint64_t value) { return entry(key, kU64, encode(value)); }
  GgufBuilder& f32(const std::string& key, float value) { return entry(key, kF32, encode(value)); }
  GgufBuilder& boolean(const std::string& key, bool value) {
    return entry(key, kBool, encode<uint8_t>(value));
  }
  GgufBuilder& text(const std::string& key, const std::string& value) {
    return entry(key, kString, encode_text(value));
  }
  GgufBuilder& texts(const std::string& key, const std::vector<std::string>& values) {
    std::string elements;
    for (const std::string& value : values) elements += encode_text(value);
    return entry(key, kArray, encode_array(kString, values.size(), elements));
  }
  // Writes general.alignment too.
  GgufBuilder& alignment(uint32_t value) {
    alignment_ = value;
    return u32("general.alignment", value);
  }
  GgufBuilder& tensor(const std::string& name, WeightType type, const std::vector<uint64_t>& ne,
                      const std::string& data) {
    tensors_.push_back({name, static_cast<uint32_t>(type), ne, data});
    return *this;
  }
  GgufBuilder& tensor(const std::string& name, WeightType type, const std::vector<uint64_t>& ne,
                      const std::vector<float>& weights) {
    return tensor(name, type, ne, encode_weights(type, weights));
  }

  std::string bytes() const {
    std::string table;
    std::string data;
    for (const Entry& t : tensors_) {
      table += encode_text(t.name) + encode(static_cast<uint32_t>(t.ne.size()));
      for (const uint64_t ne : t.ne) table += encode(ne);
      table += encode(t.type) + encode<uint64_t>(data.size());
      data += t.data;
      pad(data);
    }
    std::string file =
        "GGUF" + encode(version_) + encode<uint64_t>(tensors_.size()) + encode(n_entries_) + entries_ + table;
    pad(file);
    return file + data;
  }
  void write(const std::string& path) const {
    std::ofstream out(path, std::ios::binary);
    out << bytes();
    if (!out.flush()) throw std::runtime_error("cannot write " + path);
  }

 private:
  struct Entry {
    std::string name;
    uint32_t type;
    std::vector<uint64_t> ne;
    std::string data;
  };
  void pad(std::string& text) const {
    text.resize((text.size() + alignment_ - 1) / alignment_ * alignment_, '\0');
  }

  uint32_t version_ = 3;
  uint32_t alignment_ = 32;
  uint64_t n_entries_ = 0;
  std::string entries_;
  std::vector<Entry> tensors_;
};

struct TinyQwen3 {
  WeightType type = WeightType::F32;  // of the matrices; norms are F32
  uint32_t n_layer = 2;
  uint32_t n_embd = 64;
  uint32_t n_ff = 96;
  uint32_t n_head = 4;
  uint32_t n_head_kv = 2;
  uint32_t head_dim = 32;
  uint32_t n_vocab = 96;
  uint32_t n_ctx = 256;
  bool tied = true;
  uint32_t seed = 1;
  float rope_freq_base = 1e6f;
};

// A Qwen3 model of random weights, scaled so that activations keep their size from layer to layer.
class TinyQwen3Builder {
 public:
  explicit TinyQwen3Builder(const TinyQwen3& shape) : shape_(shape), random_(shape.seed) {}

  GgufBuilder build() {
    metadata();
    const uint64_t n_embd = shape_.n_embd;
    matrix("token_embd.weight", n_embd, shape_.n_vocab, 1.0);
    for (uint32_t layer = 0; layer < shape_.n_layer; ++layer)
      this->layer("blk." + std::to_string(layer) + ".");
    norm("output_norm.weight", n_embd);
    if (!shape_.tied) matrix("output.weight", n_embd, shape_.n_vocab, 2.0 / std::sqrt(n_embd));
    return builder_;
  }

 private:
  void metadata() {
    builder_.text("general.architecture", "qwen3").text("general.name", "tiny-qwen3");
    builder_.u32("qwen3.block_count", shape_.n_layer).u32("qwen3.context_length", shape_.n_ctx);
    builder_.u32("qwen3.embedding_length", shape_.n_embd).u32("qwen3.feed_forward_length", shape_.n_ff);
    builder_.u32("qwen3.attention.head_count", shape_.n_head)
        .u32("qwen3.attention.head_count_kv", shape_.n_head_kv);
    builder_.u32("qwen3.attention.key_length", shape_.head_dim)
        .u32("qwen3.attention.value_length", shape_.head_dim);
    builder_.f32("qwen3.rope.freq_base", shape_.rope_freq_base);
    builder_.f32("qwen3.attention.layer_norm_rms_epsilon", 1e-6f);
  }
  void layer(const std::string& blk) {
    const uint64_t n_embd = shape_.n_embd;
    const uint64_t n_q = uint64_t{shape_.n_head} * shape_.head_dim;
    const uint64_t n_kv = uint64_t{shape_.n_head_kv} * shape_.head_dim;
    norm(blk + "attn_norm.weight", n_embd);
    matrix(blk + "attn_q.weight", n_embd, n_q);
    matrix(blk + "attn_k.weight", n_embd, n_kv);
    matrix(blk + "attn_v.weight", n_embd, n_kv);
    norm(blk + "attn_q_norm.weight", shape_.head_dim);
    norm(blk + "attn_k_norm.weight", shape_.head_dim);
    matrix(blk + "attn_output.weight", n_q, n_embd);
    norm(blk + "ffn_norm.weight", n_embd);
    matrix(blk + "ffn_gate.weight", n_embd, shape_.n_ff);
    matrix(blk + "ffn_up.weight", n_embd, shape_.n_ff);
    matrix(blk + "ffn_down.weight", shape_.n_ff, n_embd);
  }
  void matrix(const std::string& name, uint64_t n_in, uint64_t n_out, double scale = 0) {
    if (scale == 0) scale = 1.0 / std::sqrt(static_cast<double>(n_in));
    std::vector<float> weights(n_in * n_out);
    for (float& w : weights) w = static_cast<float>(uniform() * scale * std::sqrt(3.0));
    builder_.tensor(name, shape_.type, {n_in, n_out}, weights);
  }
  void norm(const std::string& name, uint64_t n) {
    std::vector<float> weights(n);
    for (float& w : weights) w = static_cast<float>(1.0 + 0.2 * uniform());
    builder_.tensor(name, WeightType::F32, {n}, weights);
  }
  // In [-1, 1), the same on every standard library.
  double uniform() { return static_cast<double>(random_()) * 0x1p-31 - 1.0; }

  TinyQwen3 shape_;
  std::mt19937 random_;
  GgufBuilder builder_;
};

inline GgufBuilder tiny_qwen3(const TinyQwen3& shape) { return TinyQwen3Builder(shape).build(); }

}  // namespace logitgate::testing
