// Implements the shared options; see options.h.
// Contract: CLI11 only splits the command line; every value is parsed here.
#include "cmd/options.h"

#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "formats/output_file.h"
#include "lib/error.h"

namespace logitgate {
namespace {

constexpr int64_t kMaxThreads = 4096;

// An option whose text `parse` turns into the value.
template <class Parse>
CLI::Option* add_parsed(CLI::App& app, const std::string& name, Parse parse, const std::string& type,
                        const std::string& help) {
  return app.add_option_function<std::string>(name, parse, help)->type_name(type);
}

}  // namespace

std::optional<int64_t> to_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int64_t parse_integer(const std::string& name, const std::string& text, int64_t low, int64_t high) {
  const std::optional<int64_t> value = to_integer(text);
  if (value && *value >= low && *value <= high) return *value;
  if (high == std::numeric_limits<int64_t>::max()) {
    fail(ErrorCode::usage, "{}: '{}' is not valid; expected an integer of at least {}", name, text, low);
  }
  fail(ErrorCode::usage, "{}: '{}' is not valid; expected an integer from {} to {}", name, text, low, high);
}

CLI::Option* add_integer(CLI::App& app, const std::string& name, int64_t& value, int64_t low, int64_t high,
                         const std::string& help) {
  const auto parse = [&value, name, low, high](const std::string& text) {
    value = parse_integer(name, text, low, high);
  };
  return add_parsed(app, name, parse, "N", help);
}

CLI::Option* add_model(CLI::App& app, std::string& path) {
  return app
      .add_option("-m,--model", path, "GGUF file, or the first of a split set (default: $LOGITGATE_MODEL)")
      ->type_name("PATH")
      ->envname("LOGITGATE_MODEL");
}

const std::string& require_model(const std::string& path) {
  if (path.empty())
    fail(ErrorCode::usage, "--model: none given; expected -m model.gguf, or LOGITGATE_MODEL set");
  return path;
}

CLI::Option* add_rows(CLI::App& app, RowSelection& rows, const std::string& help) {
  return add_parsed(
      app, "--rows", [&rows](const std::string& text) { rows = parse_rows(text); }, "last|all|A:B", help);
}

CLI::Option* add_store(CLI::App& app, StoreSpec& store) {
  const auto parse = [&store](const std::string& text) { store = parse_store(text); };
  return add_parsed(
      app, "--store", parse, "f32|f64|bf16|f16|topk:K",
      "How logits are stored; topk:K keeps the K largest and the log-sum-exp (default: f32, lossless)");
}

CLI::Option* add_shard(CLI::App& app, Shard& shard) {
  const auto parse = [&shard](const std::string& text) { shard = parse_shard(text); };
  return add_parsed(app, "--shard", parse, "I/N|auto",
                    "Take the records whose index mod N is I; auto reads Slurm's variables");
}

CLI::Option* add_threads(CLI::App& app, int& threads) {
  const auto parse = [&threads](const std::string& text) {
    threads = static_cast<int>(parse_integer("--threads", text, 1, kMaxThreads));
  };
  return add_parsed(app, "--threads", parse, "N", "CPU threads (default: all)");
}

CLI::Option* add_level(CLI::App& app, int& level) {
  const auto parse = [&level](const std::string& text) {
    level = static_cast<int>(parse_integer("--level", text, 1, 19));
  };
  return add_parsed(app, "--level", parse, "N", fmt::format("zstd level, 1 to 19 (default: {})", level));
}

CLI::Option* add_force(CLI::App& app, bool& force) {
  return app.add_flag("-f,--force", force, "Replace an existing output");
}

void add_progress(CLI::App& app, ProgressMode& mode) {
  const auto parse = [&mode](const std::string& text) { mode = parse_progress(text); };
  CLI::Option* progress = add_parsed(app, "--progress", parse, "auto|always|never",
                                     "Progress on stderr: in place on a terminal, else a line every 30 s");
  app.add_flag_callback(
         "-q,--quiet", [&mode] { mode = ProgressMode::never; }, "No progress on stderr")
      ->excludes(progress);
}

void check_output(const std::string& output, bool force, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(output, ignored) &&
        std::filesystem::equivalent(input, output, ignored))
      fail(ErrorCode::usage, "{}: is an input of this command too; expected another output", output);
  }
  check_output_is_free(output, force);
}

}  // namespace logitgate
