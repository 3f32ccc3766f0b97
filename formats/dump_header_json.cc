// The header frame's JSON: provenance with a fixed order of keys, written by nlohmann/json and read by
// simdjson. Contract: equal headers give equal bytes; unknown keys are ignored, missing ones and wrong types
// are Error{corrupt}, a newer version is Error{unsupported}.
#include <simdjson.h>

#include <nlohmann/json.hpp>

#include "formats/dump_frames.h"
#include "lib/error.h"

namespace logitgate {

namespace {

constexpr std::string_view kFormatName = "logitgate-dump";

class HeaderFields {
 public:
  HeaderFields(const FramePlace& place, simdjson::dom::object object) : place_(place), object_(object) {}

  template <class T>
  T get(const char* key) const {
    T value{};
    if (object_[key].get(value) != simdjson::SUCCESS) {
      fail_frame(place_, fmt::format("header: key \"{}\" is missing or of another type", key));
    }
    return value;
  }
  std::string text(const char* key) const { return std::string(get<std::string_view>(key)); }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> result;
    for (const simdjson::dom::element element : get<simdjson::dom::array>(key)) {
      std::string_view value;
      if (element.get(value) != simdjson::SUCCESS) {
        fail_frame(place_, fmt::format("header: key \"{}\" holds something that is not a string", key));
      }
      result.emplace_back(value);
    }
    return result;
  }

 private:
  const FramePlace& place_;
  simdjson::dom::object object_;
};

void parse_numbers(const FramePlace& place, const HeaderFields& fields, DumpHeader& header) {
  const uint64_t n_vocab = fields.get<uint64_t>("n_vocab");
  if (n_vocab > kMaxVocab) {
    fail_frame(place, fmt::format("header: n_vocab is {}, and at most {} is possible", n_vocab, kMaxVocab));
  }
  header.n_vocab = static_cast<uint32_t>(n_vocab);
  header.shard_index = fields.get<uint64_t>("shard_index");
  header.shard_count = fields.get<uint64_t>("shard_count");
  try {
    header.store = parse_store(fields.text("store"));
    check_header("header", header);
  } catch (const Error& error) {
    fail_frame(place, error.message());
  }
}

}  // namespace

ByteBuffer make_header_payload(const DumpHeader& header) {
  nlohmann::ordered_json json;
  json["format"] = kFormatName;
  json["version"] = kDumpVersion;
  json["model_name"] = header.model_name;
  json["architecture"] = header.architecture;
  json["weights_digest"] = header.weights_digest;
  json["weights_types"] = header.weights_types;
  json["command"] = header.command;
  json["precision"] = header.precision;
  json["backend"] = header.backend;
  json["device"] = header.device;
  json["algorithms"] = header.algorithms;
  json["tool"] = header.tool;
  json["rows"] = header.rows;
  json["log_probs"] = header.log_probs;
  json["lossy"] = header.lossy;
  json["store"] = to_string(header.store);
  json["n_vocab"] = header.n_vocab;
  json["shard_index"] = header.shard_index;
  json["shard_count"] = header.shard_count;
  ByteBuffer payload;
  payload.put(kHeaderTag);
  // Model names come from files: what is not UTF-8 is replaced, not refused.
  payload.append(json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  if (payload.size() > kMaxHeaderBytes) {
    fail(ErrorCode::usage, "dump header: has {} bytes of provenance; at most {} are possible", payload.size(),
         kMaxHeaderBytes);
  }
  return payload;
}

DumpHeader parse_header_payload(const FramePlace& place, ByteSpan payload) {
  ByteReader reader(payload);
  if (reader.get<uint32_t>() != kHeaderTag) {
    fail(ErrorCode::corrupt, "{}: offset {}: is not a dump's header; name a dump that logitgate wrote",
         place.name, place.offset);
  }
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  const simdjson::padded_string json(reader.text(reader.left()));
  if (parser.parse(json).get(object) != simdjson::SUCCESS) fail_frame(place, "header: is not a JSON object");
  const HeaderFields fields(place, object);
  if (fields.text("format") != kFormatName) fail_frame(place, "header: is not that of a logitgate dump");
  const uint64_t version = fields.get<uint64_t>("version");
  if (version != kDumpVersion) {
    fail(ErrorCode::unsupported, "{}: offset {}: is a dump of version {}, and this build reads version {}",
         place.name, place.offset, version, kDumpVersion);
  }
  DumpHeader header;
  header.model_name = fields.text("model_name");
  header.architecture = fields.text("architecture");
  header.weights_digest = fields.text("weights_digest");
  header.weights_types = fields.text("weights_types");
  header.command = fields.text("command");
  header.precision = fields.text("precision");
  header.backend = fields.text("backend");
  header.device = fields.text("device");
  header.algorithms = fields.texts("algorithms");
  header.tool = fields.text("tool");
  header.rows = fields.text("rows");
  header.log_probs = fields.get<bool>("log_probs");
  header.lossy = fields.get<bool>("lossy");
  parse_numbers(place, fields, header);
  return header;
}

}  // namespace logitgate
