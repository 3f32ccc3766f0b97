// `logitgate inspect`: says what a file is, what shape it has and where it comes from; --verify reads and checks every byte.
// Contract: the kind is told from the content. The text is the JSON, one `key: value` a line. A file that is
// not whole is trouble, found by --verify at the latest.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "cmd/file_kind.h"
#include "cmd/options.h"
#include "cmd/verbs.h"
#include "formats/dump_reader.h"
#include "formats/text.h"
#include "formats/token_jsonl.h"
#include "lib/error.h"
#include "lib/model_file.h"

namespace logitgate {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string input;
  bool verify = false;
  bool json = false;
  int threads = 0;
};

// --- model -----------------------------------------------------------------------------------------------------------

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
  std::vector<float> row(static_cast<size_t>(tensor.n_in()));
  for (int64_t r = 0; r < tensor.n_out(); ++r) {
    info.dequantize_row(tensor.data + static_cast<size_t>(r) * tensor.row_bytes(), row.data(), row.size());
    for (size_t i = 0; i < row.size(); ++i) {
      if (!std::isfinite(row[i])) {
        fail(ErrorCode::corrupt, "{}: {}: row {}, weight {} is {}; expected finite weights", path,
             tensor.name, r, i, row[i]);
      }
    }
  }
}

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
  if (records == 0) {
    fail(ErrorCode::corrupt, "{}: no record; expected a model (GGUF), a dump or JSON lines of tokens",
         options.input == "-" ? "stdin" : options.input);
  }
  return {{"kind", "batch"},
          {"file", options.input == "-" ? "stdin" : options.input},
          {"records", records},
          {"tokens", tokens},
          {"shortest_record", shortest},
          {"longest_record", longest},
          {"largest_token", largest}};
}

// --- output ----------------------------------------------------------------------------------------------------------

void print_text(const Json& json, const std::string& prefix) {
  for (const auto& [key, value] : json.items()) {
    if (value.is_object()) {
      print_text(value, prefix + key + ".");
    } else {
      const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      fmt::print("{}{}: {}\n", prefix, key, text.empty() ? "-" : printable(text, 400));
    }
  }
}

int run(const InspectOptions& options) {
  const FileProbe probe(options.input);
  Json json = probe.kind() == FileKind::model  ? inspect_model(options)
              : probe.kind() == FileKind::dump ? inspect_dump(options)
                                               : inspect_batch(options);
  probe.check_stdin();
  if (options.verify) json["verified"] = true;
  if (options.json) {
    fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_text(json, "");
  }
  return 0;
}

}  // namespace

Verb add_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  app.add_option("FILE", options->input, "A model (GGUF), a dump or a token batch; - is stdin")->required();
  app.add_flag("--verify", options->verify,
               "Read and check every byte: checksums of a dump, values of weights");
  app.add_flag("--json", options->json, "As JSON");
  add_threads(app, options->threads);
  app.footer(
      "Example:\n"
      "  logitgate inspect model.gguf\n"
      "  logitgate inspect --verify --json prefill.zst");
  return [options] { return run(*options); };
}

}  // namespace logitgate
