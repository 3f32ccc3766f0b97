// Names of stores, block geometry, digests and comparison of headers.
// Contract: see dump_format.h and dump_format.md.
#include "formats/dump_format.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>

#include "lib/error.h"

namespace logitgate {

namespace {

constexpr uint64_t kBlockTargetBytes = uint64_t{1} << 20;  // stored rows of a block, uncompressed
constexpr uint64_t kBlockSourceBytes = uint64_t{4}
                                       << 20;  // the rows a block was made from, as f32 (topk is far smaller)
constexpr const char* kStoreNames[] = {"f32", "f64", "bf16", "f16", "topk"};

template <class T>
void compare_field(std::string& result, const char* name, const T& ours, const T& theirs) {
  if (result.empty() && !(ours == theirs)) result = fmt::format("{}: {}, not {}", name, ours, theirs);
}

std::string joined(const std::vector<std::string>& texts) {
  std::string result;
  for (const std::string& text : texts) result += (result.empty() ? "" : ",") + text;
  return result;
}

}  // namespace

std::string to_string(StoreSpec store) {
  const std::string name = kStoreNames[static_cast<int>(store.type)];
  return store.type == StoreType::topk ? name + ":" + std::to_string(store.k) : name;
}

StoreSpec parse_store(const std::string& text) {
  for (const StoreType type : {StoreType::f32, StoreType::f64, StoreType::bf16, StoreType::f16}) {
    if (text == kStoreNames[static_cast<int>(type)]) return {type, 0};
  }
  StoreSpec store{StoreType::topk, 0};
  if (text.starts_with("topk:")) {
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data() + 5, end, store.k);
    const bool plain = result.ec == std::errc() && result.ptr == end && text[5] != '0';
    if (plain && store.k <= kMaxVocab) return store;
  }
  fail(ErrorCode::usage, "store '{}': is none of f32, f64, bf16, f16, topk:K (K from 1 to {})", text,
       kMaxVocab);
}

uint64_t stored_row_bytes(StoreSpec store, uint32_t n_vocab) {
  switch (store.type) {
    case StoreType::f32:
      return uint64_t{n_vocab} * 4;
    case StoreType::f64:
      return uint64_t{n_vocab} * 8;
    case StoreType::bf16:
    case StoreType::f16:
      return uint64_t{n_vocab} * 2;
    case StoreType::topk:
      break;
  }
  return uint64_t{store.k} * 8 + 8;
}

uint32_t rows_per_block(StoreSpec store, uint32_t n_vocab) {
  const uint64_t stored = kBlockTargetBytes / std::max<uint64_t>(stored_row_bytes(store, n_vocab), 1);
  const uint64_t source = kBlockSourceBytes / std::max<uint64_t>(uint64_t{n_vocab} * 4, 1);
  return static_cast<uint32_t>(std::max<uint64_t>(std::min(stored, source), 1));
}

Digest128 digest_tokens(const std::vector<int32_t>& tokens) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(tokens.data(), tokens.size() * sizeof(int32_t)));
  Digest128 digest;
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), digest.begin());
  return digest;
}

void check_header(const std::string& name, const DumpHeader& header) {
  if (header.n_vocab == 0 || header.n_vocab > kMaxVocab) {
    fail(ErrorCode::usage, "{}: n_vocab is {}; a dump holds rows of 1 to {} logits", name, header.n_vocab,
         kMaxVocab);
  }
  const bool topk = header.store.type == StoreType::topk;
  if (topk && (header.store.k == 0 || header.store.k > header.n_vocab)) {
    fail(ErrorCode::usage, "{}: store {} keeps none, or more than the {} logits of a row", name,
         to_string(header.store), header.n_vocab);
  }
  if (header.shard_count == 0 || header.shard_index >= header.shard_count) {
    fail(ErrorCode::usage, "{}: shard {}/{}: the first number must be below the second", name,
         header.shard_index, header.shard_count);
  }
}

std::string header_difference(const DumpHeader& ours, const DumpHeader& theirs, bool what_matters) {
  std::string result;
  compare_field(result, "weights digest", ours.weights_digest, theirs.weights_digest);
  compare_field(result, "architecture", ours.architecture, theirs.architecture);
  compare_field(result, "command", ours.command, theirs.command);
  compare_field(result, "precision", ours.precision, theirs.precision);
  compare_field(result, "store", to_string(ours.store), to_string(theirs.store));
  compare_field(result, "n_vocab", ours.n_vocab, theirs.n_vocab);
  compare_field(result, "log-probabilities", ours.log_probs, theirs.log_probs);
  if (what_matters) return result;
  compare_field(result, "backend", ours.backend, theirs.backend);
  compare_field(result, "device", ours.device, theirs.device);
  compare_field(result, "algorithms", joined(ours.algorithms), joined(theirs.algorithms));
  compare_field(result, "tool", ours.tool, theirs.tool);
  compare_field(result, "lossy", ours.lossy, theirs.lossy);
  compare_field(result, "model name", ours.model_name, theirs.model_name);
  compare_field(result, "weight types", ours.weights_types, theirs.weights_types);
  compare_field(result, "rows", ours.rows, theirs.rows);
  compare_field(result, "shard index", ours.shard_index, theirs.shard_index);
  compare_field(result, "shard count", ours.shard_count, theirs.shard_count);
  if (result.empty() && !(ours == theirs)) result = "algorithms: another list";
  return result;
}

std::string segment_difference(const DumpHeader& segment, const DumpHeader& first, bool allow_mixed) {
  const std::string foreign = header_difference(segment, first, true);
  if (!foreign.empty()) return "a segment that does not belong to the first: " + foreign;
  DumpHeader like_first = segment;
  like_first.rows = first.rows;
  like_first.shard_index = first.shard_index;
  like_first.shard_count = first.shard_count;
  const std::string mixed = header_difference(like_first, first);
  if (mixed.empty() || allow_mixed) return "";
  return "a segment made otherwise than the first: " + mixed + "; --allow-mixed allows it";
}

}  // namespace logitgate
