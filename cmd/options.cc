// Implements the shared options; see options.h.
// Contract: CLI11 only splits the command line; every value is parsed here.
#include "cmd/options.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

#include "lib/error.h"

namespace logitgate {
namespace {

constexpr int64_t kMaxThreads = 4096;

std::optional<int64_t> to_integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// An unset or empty variable is absent.
std::optional<int64_t> slurm_variable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  const std::optional<int64_t> value = to_integer(text);
  if (!value || *value < 0) {
    fail(ErrorCode::usage, "--shard auto: {}='{}' is not a task number; expected what Slurm sets", name,
         text);
  }
  return value;
}

// A place among tasks, from variables that Slurm sets together or not at all.
std::optional<Shard> slurm_place(const char* task_name, std::optional<int64_t> task, const char* count_name,
                                 std::optional<int64_t> count) {
  if (!task && !count) return std::nullopt;
  if (!task || !count) {
    fail(ErrorCode::usage, "--shard auto: {} is set and {} is not; expected both, as Slurm sets them",
         task ? task_name : count_name, task ? count_name : task_name);
  }
  if (*task < 0 || *task >= *count) {
    fail(ErrorCode::usage,
         "--shard auto: task {} of {} ({}, {}) is out of range; expected an unbroken range of tasks", *task,
         *count, task_name, count_name);
  }
  return Shard{static_cast<uint64_t>(*task), static_cast<uint64_t>(*count), true};
}

// The place in a job array, whose ids start at MIN and must have no gaps: a gap would be a share nobody
// takes.
std::optional<Shard> slurm_array_place() {
  std::optional<int64_t> task = slurm_variable("SLURM_ARRAY_TASK_ID");
  const std::optional<int64_t> count = slurm_variable("SLURM_ARRAY_TASK_COUNT");
  const int64_t low = slurm_variable("SLURM_ARRAY_TASK_MIN").value_or(0);
  const int64_t step = slurm_variable("SLURM_ARRAY_TASK_STEP").value_or(1);
  const std::optional<int64_t> high = slurm_variable("SLURM_ARRAY_TASK_MAX");
  if (task && count) {
    const int64_t offset = *task - low;
    if (step == 0 || offset % step != 0 || (high && (*high - low) / step + 1 != *count)) {
      fail(ErrorCode::usage,
           "--shard auto: task ids of this job array have gaps (id {}, min {}, step {}, count {}); expected "
           "an unbroken "
           "range such as --array=0-7",
           *task, low, step, *count);
    }
    task = offset / step;
  }
  return slurm_place("SLURM_ARRAY_TASK_ID", task, "SLURM_ARRAY_TASK_COUNT", count);
}

Shard slurm_shard() {
  const std::optional<Shard> array = slurm_array_place();
  const std::optional<Shard> step = slurm_place("SLURM_PROCID", slurm_variable("SLURM_PROCID"),
                                                "SLURM_NTASKS", slurm_variable("SLURM_NTASKS"));
  if (!array && !step) {
    fail(ErrorCode::usage,
         "--shard auto: no Slurm job array or job step here (SLURM_ARRAY_TASK_ID, SLURM_PROCID); expected "
         "I/N");
  }
  if (!array || !step) return array ? *array : *step;
  if (array->count == 1) return *step;
  if (step->count == 1 || *array == *step) return *array;
  fail(ErrorCode::usage,
       "--shard auto: the job array says {}/{} and the job step {}/{}; expected one of them, or I/N",
       array->index, array->count, step->index, step->count);
}

// An option whose text `parse` turns into the value.
template <class Parse>
CLI::Option* add_parsed(CLI::App& app, const std::string& name, Parse parse, const std::string& type,
                        const std::string& help) {
  return app.add_option_function<std::string>(name, parse, help)->type_name(type);
}

}  // namespace

Shard parse_shard(const std::string& text) {
  if (text == "auto") return slurm_shard();
  const size_t slash = text.find('/');
  const std::string_view view = text;
  if (slash != std::string::npos) {
    const std::optional<int64_t> index = to_integer(view.substr(0, slash));
    const std::optional<int64_t> count = to_integer(view.substr(slash + 1));
    if (index && count && *index >= 0 && *index < *count) {
      return {static_cast<uint64_t>(*index), static_cast<uint64_t>(*count), true};
    }
  }
  fail(ErrorCode::usage, "--shard: '{}' is not a share; expected I/N with 0 <= I < N, or auto", text);
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

}  // namespace logitgate
