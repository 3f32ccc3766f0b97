// Parses --shard, also from what Slurm says of this process; see shard.h.
// Contract: a share is taken only where the variables leave no doubt; two sources that share out the work must agree.
#include "cmd/shard.h"

#include <cstdlib>
#include <optional>
#include <string_view>

#include "cmd/options.h"
#include "lib/error.h"

namespace logitgate {
namespace {

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

}  // namespace logitgate
