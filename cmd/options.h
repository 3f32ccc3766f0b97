// Options that several verbs share, and the parsing of their values.
// Contract: a value is taken whole or refused with Error{usage} that names the option; nothing is rounded,
// cut or guessed. An option that takes one value may be given once. The referenced variable holds the default
// before and the value after parsing.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "cmd/progress.h"
#include "formats/dump_format.h"
#include "lib/rows.h"

namespace logitgate {

// Every record whose index mod count is `index` belongs to this process.
struct Shard {
  uint64_t index = 0;
  uint64_t count = 1;
  bool given = false;  // --shard was on the command line

  bool takes(uint64_t record_index) const { return record_index % count == index; }
  friend bool operator==(const Shard&, const Shard&) = default;
};

// "I/N" with 0 ≤ I < N, or "auto": the place among the tasks of a Slurm job array (SLURM_ARRAY_TASK_ID, _MIN,
// _COUNT) or of a job step (SLURM_PROCID, SLURM_NTASKS). Trouble where there are none, or both and they
// disagree.
Shard parse_shard(const std::string& text);

// A decimal integer in [low, high]; `name` is for the message.
int64_t parse_integer(const std::string& name, const std::string& text, int64_t low, int64_t high);

CLI::Option* add_integer(CLI::App& app, const std::string& name, int64_t& value, int64_t low, int64_t high,
                         const std::string& help);
// -m/--model or LOGITGATE_MODEL; require_model() after parsing refuses an empty one.
CLI::Option* add_model(CLI::App& app, std::string& path);
const std::string& require_model(const std::string& path);
CLI::Option* add_rows(CLI::App& app, RowSelection& rows, const std::string& help);
CLI::Option* add_store(CLI::App& app, StoreSpec& store);
CLI::Option* add_shard(CLI::App& app, Shard& shard);
CLI::Option* add_threads(CLI::App& app, int& threads);  // 0: all
CLI::Option* add_level(CLI::App& app, int& level);      // zstd level
CLI::Option* add_force(CLI::App& app, bool& force);     // -f/--force
void add_progress(CLI::App& app, ProgressMode& mode);   // --progress, --quiet

}  // namespace logitgate
