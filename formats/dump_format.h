// What a logit dump holds, in memory: header, records and decoded rows; constants of the format on disk.
// Contract: formats/dump_format.md is the byte-exact specification; this header holds its constants.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace logitgate {

// Limits of the format: a file that declares more is refused before anything is allocated, and none is
// written.
constexpr uint32_t kDumpVersion = 1;
constexpr uint32_t kMaxVocab = uint32_t{1} << 23;
constexpr uint32_t kMaxRecordTokens = uint32_t{1} << 24;
constexpr uint32_t kMaxIdBytes = uint32_t{1} << 16;
constexpr uint32_t kMaxHeaderBytes = uint32_t{1} << 20;

enum class StoreType : uint8_t { f32, f64, bf16, f16, topk };

struct StoreSpec {
  StoreType type = StoreType::f32;
  uint32_t k = 0;  // topk: how many are kept
  friend bool operator==(const StoreSpec&, const StoreSpec&) = default;
};
std::string to_string(StoreSpec store);          // "f32", "topk:64"
StoreSpec parse_store(const std::string& text);  // Error{usage} for anything else

// Stored bytes of one row, and how many rows a block holds (the last block of a record may hold fewer).
uint64_t stored_row_bytes(StoreSpec store, uint32_t n_vocab);
uint32_t rows_per_block(StoreSpec store, uint32_t n_vocab);

// Provenance: what the numbers depend on and nothing that varies from run to run.
struct DumpHeader {
  std::string model_name;  // general.name
  std::string architecture;
  std::string weights_digest;  // 32 hex digits; empty where unknown (an import)
  std::string weights_types;   // types of the matrices, most frequent first: "Q8_0", "Q4_K,Q6_K"
  std::string command;         // "prefill", "decode-prime", "import"
  std::string precision;       // "f32", "f64", …
  std::string backend;         // "cpu", "cuda"
  std::string device;
  std::vector<std::string> algorithms;
  std::string tool;        // what wrote it, without a commit: "logitgate 0.1.0"
  std::string rows;        // the --rows selection as given, in its shortest form
  bool log_probs = false;  // rows are log-probabilities, not logits
  bool lossy = false;      // an import from a lossy source
  StoreSpec store;
  uint32_t n_vocab = 0;
  uint64_t shard_index = 0;  // I of --shard I/N
  uint64_t shard_count = 1;  // N
  friend bool operator==(const DumpHeader&, const DumpHeader&) = default;
};
// Throws Error{usage} "NAME: ..." for a header outside the limits above.
void check_header(const std::string& name, const DumpHeader& header);
// The first field in which two headers differ, with both values: "precision: f32, not f64"; empty if they are
// equal. what_matters leaves out device, backend, algorithms, tool and others that --allow-mixed allows, rows
// and the shard.
std::string header_difference(const DumpHeader& ours, const DumpHeader& theirs, bool what_matters = false);

// Why a segment may not stand in one dump with the first one; empty if it may. Rows and shards differ as they like;
// backend, device, algorithms, tool and the like do with allow_mixed.
std::string segment_difference(const DumpHeader& segment, const DumpHeader& first, bool allow_mixed);

using Digest128 = std::array<uint8_t, 16>;

struct DumpRecord {
  std::string id;
  uint64_t index = 0;  // 0-based over all inputs, before sharding
  uint32_t n_tokens = 0;
  Digest128 tokens_digest{};        // XXH3-128 of the token ids as little-endian int32
  std::vector<uint32_t> positions;  // ascending; one row each
  friend bool operator==(const DumpRecord&, const DumpRecord&) = default;
};
Digest128 digest_tokens(const std::vector<int32_t>& tokens);

// Decoded rows of one record, consecutive: row i is for positions[first_row + i] of the record.
// Exactly one of f32 (stores f32, bf16, f16: widened without loss), f64 or ids/values/lse (topk) is filled.
struct RowBlock {
  uint32_t first_row = 0;
  uint32_t n_rows = 0;
  std::vector<float> f32;           // [n_rows, n_vocab]
  std::vector<double> f64;          // [n_rows, n_vocab]
  std::vector<uint32_t> ids;        // [n_rows, k] by falling value, ties by rising id
  std::vector<float> values;        // [n_rows, k]
  std::vector<double> log_sum_exp;  // [n_rows] over the whole vocabulary
};
// topk: NaNs come first, by rising id, so that none vanishes; a row with a NaN has a NaN log-sum-exp.

}  // namespace logitgate
