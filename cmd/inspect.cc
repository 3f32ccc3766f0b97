// `logitgate inspect`: says what a file is, what shape it has and where it comes from; --verify reads and checks every byte.
// Contract: the kind is told from the content. The text is the JSON, one `key: value` a line. A file that is
// not whole is trouble, found by --verify at the latest.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "cmd/file_kind.h"
#include "cmd/inspect_kinds.h"
#include "cmd/options.h"
#include "cmd/verbs.h"
#include "formats/text.h"
#include "lib/error.h"

namespace logitgate {
namespace {

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

Json inspect_file(const InspectOptions& options) {
  if (options.input.empty())
    fail(ErrorCode::usage, "FILE is missing; expected a file, -, or --devices alone");
  const FileProbe probe(options.input);
  Json json = probe.kind() == FileKind::model  ? inspect_model(options)
              : probe.kind() == FileKind::dump ? inspect_dump(options)
                                               : inspect_batch(options);
  probe.check_stdin();
  if (options.verify) json["verified"] = true;
  return json;
}

int run(const InspectOptions& options) {
  const Json json = options.devices ? inspect_devices() : inspect_file(options);
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
  CLI::Option* file =
      app.add_option("FILE", options->input, "A model (GGUF), a dump or a token batch; - is stdin");
  app.add_flag("--devices", options->devices, "List what --device can name on this machine")->excludes(file);
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
