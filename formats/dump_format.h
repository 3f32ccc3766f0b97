// What a logit dump holds, in memory: header, records and decoded rows; constants of the format on disk.
// Contract: formats/dump_format.md is the byte-exact specification; this header holds its constants.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace logitgate {

enum class StoreType : uint8_t { f32, f64, bf16, f16, topk };

struct StoreSpec {
  StoreType type = StoreType::f32;
  uint32_t k = 0;  // topk: how many are kept
  friend bool operator==(const StoreSpec&, const StoreSpec&) = default;
};
std::string to_string(StoreSpec store);               // "f32", "topk:64"
StoreSpec parse_store(const std::string& text);       // Error{usage} for anything else

// Provenance: what the numbers depend on and nothing that varies from run to run.
struct DumpHeader {
  std::string model_name;      // general.name
  std::string architecture;
  std::string weights_digest;  // 32 hex digits; empty where unknown (an import)
  std::string weights_types;   // types of the matrices, most frequent first: "Q8_0", "Q4_K,Q6_K"
  std::string command;         // "prefill", "decode-prime", "import"
  std::string precision;       // "f32", "f64", …
  std::string backend;         // "cpu", "cuda"
  std::string device;
  std::vector<std::string> algorithms;
  std::string tool;            // what wrote it, without a commit: "logitgate 0.1.0"
  std::string rows;            // the --rows selection as given, in its shortest form
  bool log_probs = false;      // rows are log-probabilities, not logits
  bool lossy = false;          // an import from a lossy source
  StoreSpec store;
  uint32_t n_vocab = 0;
  uint64_t shard_index = 0;    // I of --shard I/N
  uint64_t shard_count = 1;    // N
};

using Digest128 = std::array<uint8_t, 16>;

struct DumpRecord {
  std::string id;
  uint64_t index = 0;               // 0-based over all inputs, before sharding
  uint32_t n_tokens = 0;
  Digest128 tokens_digest{};        // XXH3-128 of the token ids as little-endian int32
  std::vector<uint32_t> positions;  // ascending; one row each
};
Digest128 digest_tokens(const std::vector<int32_t>& tokens);

// Decoded rows of one record, consecutive: row i is for positions[first_row + i] of the record.
// Exactly one of f32 (stores f32, bf16, f16: widened without loss), f64 or ids/values/lse (topk) is filled.
struct RowBlock {
  uint32_t first_row = 0;
  uint32_t n_rows = 0;
  std::vector<float> f32;        // [n_rows, n_vocab]
  std::vector<double> f64;       // [n_rows, n_vocab]
  std::vector<uint32_t> ids;     // [n_rows, k] by falling value, ties by rising id
  std::vector<float> values;     // [n_rows, k]
  std::vector<double> log_sum_exp;  // [n_rows] over the whole vocabulary
};

}  // namespace logitgate
