// Looks into models, dumps and token batches; see inspect_kinds.h.
// Contract: nothing here prints.
#include "cmd/inspect_kinds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "formats/dump_reader.h"
#include "formats/token_jsonl.h"
#include "kernels/backends.h"
#include "kernels/cuda_module.h"
#include "lib/error.h"
#include "lib/model_file.h"

namespace logitgate {

// --- model -----------------------------------------------------------------------------------------------------------

namespace {

Json to_json(const GgufValue& value) {
  return std::visit(
      [](const auto& held) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::shared_ptr<GgufArray>>) {
          return fmt::format("{} of {}", held->size, gguf_type_name(held->element_type));
        } else if constexpr (std::is_same_v<std::decay_t<decltype(held)>, double>) {
          if (!std::isfinite(held)) return std::isnan(held) ? "NaN" : held > 0 ? "Infinity" : "-Infinity";
          return held;
        } else {
          return held;
        }
      },
      value);
}

// The weights themselves: a value that is not finite makes every logit NaN or infinite.
void verify_tensor(const std::string& path, const Tensor& tensor) {
  const WeightTypeInfo& info = weight_type_info(tensor.type);
  if (!info.computes) return;
  constexpr size_t kChunk = 1 << 14;  // weights: whole blocks of every type
  std::vector<float> weights(kChunk);
  const auto n_elements = static_cast<size_t>(tensor.n_elements());
  for (size_t done = 0; done < n_elements; done += kChunk) {
    const size_t n = std::min(kChunk, n_elements - done);
    info.dequantize_row(tensor.data + done / info.block_size * info.block_bytes, weights.data(), n);
    for (size_t i = 0; i < n; ++i) {
      if (std::isfinite(weights[i])) continue;
      fail(ErrorCode::corrupt, "{}: {}: weight {} of {} is {}; expected finite weights", path, tensor.name,
           done + i, n_elements, weights[i]);
    }
  }
}

}  // namespace

Json inspect_model(const InspectOptions& options) {
  if (options.input == "-")
    fail(ErrorCode::usage, "stdin: a model is mapped, not streamed; expected its file");
  const ModelFile file = ModelFile::open(options.input);
  uint64_t parameters = 0;
  std::map<std::string, uint64_t> type_counts;
  for (const Tensor& tensor : file.tensors()) {
    parameters += static_cast<uint64_t>(tensor.n_elements());
    ++type_counts[std::string(weight_type_info(tensor.type).name)];
  }
  Json json{{"kind", "model"},
            {"file", options.input},
            {"format", fmt::format("GGUF {}", file.gguf().version())},
            {"bytes", file.gguf().file_bytes()},
            {"parts", file.gguf().parts().size()},
            {"model_name", file.name()},
            {"architecture", file.architecture()},
            {"weights_types", weights_types(file)},
            {"tensors", file.tensors().size()},
            {"parameters", parameters},
            {"tensor_types", type_counts}};
  if (options.verify) {
    for (const Tensor& tensor : file.tensors()) verify_tensor(options.input, tensor);
    json["weights_digest"] = weights_digest(file, options.threads);
  }
  for (const auto& [key, value] : file.gguf().metadata()) json["metadata"][key] = to_json(value);
  return json;
}

// --- dump ------------------------------------------------------------------------------------------------------------

namespace {

Json provenance(const DumpHeader& header) {
  return {{"model_name", header.model_name},
          {"architecture", header.architecture},
          {"weights_digest", header.weights_digest},
          {"weights_types", header.weights_types},
          {"command", header.command},
          {"precision", header.precision},
          {"backend", header.backend},
          {"device", header.device},
          {"algorithms", header.algorithms},
          {"tool", header.tool},
          {"rows", header.rows},
          {"log_probs", header.log_probs},
          {"lossy", header.lossy},
          {"shard_index", header.shard_index},
          {"shard_count", header.shard_count}};
}

// Every block is decoded, so that every checksum is looked at.
Json read_all(DumpReader& reader) {
  uint64_t records = 0, tokens = 0, rows = 0, non_finite = 0;
  DumpRecord record;
  RowBlock block;
  const auto bad = [](auto value) { return !std::isfinite(value); };
  while (reader.next_record(record)) {
    ++records;
    tokens += record.n_tokens;
    rows += record.positions.size();
    while (reader.next_rows(block)) {
      non_finite += static_cast<uint64_t>(std::count_if(block.f32.begin(), block.f32.end(), bad) +
                                          std::count_if(block.f64.begin(), block.f64.end(), bad) +
                                          std::count_if(block.values.begin(), block.values.end(), bad));
    }
  }
  return {{"records", records}, {"tokens", tokens}, {"rows", rows}, {"non_finite_logits", non_finite}};
}

}  // namespace

Json inspect_dump(const InspectOptions& options) {
  DumpReaderOptions reading;
  reading.threads = options.threads;
  reading.allow_mixed = true;
  DumpReader reader(options.input, reading);
  Json json{{"kind", "dump"},
            {"file", reader.name()},
            {"store", to_string(reader.header().store)},
            {"n_vocab", reader.header().n_vocab}};
  if (options.verify || !reader.seekable()) {
    json.update(read_all(reader));
  } else {
    json["records"] = reader.n_records();
  }
  json["provenance"] = provenance(reader.header());
  return json;
}

// --- batch -----------------------------------------------------------------------------------------------------------

Json inspect_batch(const InspectOptions& options) {
  TokenReader reader({options.input}, {});
  TokenRecord record;
  uint64_t records = 0, tokens = 0;
  size_t shortest = SIZE_MAX, longest = 0;
  int32_t largest = 0;
  while (reader.next(record)) {
    ++records;
    tokens += record.tokens.size();
    shortest = std::min(shortest, record.tokens.size());
    longest = std::max(longest, record.tokens.size());
    largest = std::max(largest, *std::max_element(record.tokens.begin(), record.tokens.end()));
  }
  return {{"kind", "batch"},
          {"file", options.input == "-" ? "stdin" : options.input},
          {"records", records},
          {"tokens", tokens},
          {"shortest_record", shortest},
          {"longest_record", longest},
          {"largest_token", largest}};
}

// --- devices ---------------------------------------------------------------------------------------------------------

Json inspect_devices() {
  Json json{{"kind", "devices"}, {"cpu", {{"simd", simd_level()}}}};
  std::string why;
  for (const CudaDevice& device : list_cuda_devices(why)) {
    json[fmt::format("cuda:{}", device.index)] = {
        {"name", device.name},
        {"compute_capability", fmt::format("{}.{}", device.major, device.minor)},
        {"total_bytes", device.total_bytes},
        {"free_bytes", device.free_bytes},
        {"usable", device.usable},
        {"why_not", device.why_not}};
  }
  if (!json.contains("cuda:0")) json["cuda"] = fmt::format("none ({})", why);
  return json;
}

}  // namespace logitgate
