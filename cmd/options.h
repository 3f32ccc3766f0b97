// Options that several verbs share, and the parsing of their values.
// Contract: a value is taken whole or refused with Error{usage} that names the option; nothing is rounded,
// cut or guessed. An option that takes one value may be given once. The referenced variable holds the default
// before and the value after parsing.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>
#include <string_view>

#include "cmd/progress.h"
#include "cmd/shard.h"
#include "formats/dump_format.h"
#include "lib/rows.h"

namespace logitgate {

// The whole of text as a decimal integer, if it is one.
std::optional<int64_t> to_integer(std::string_view text);

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

// Throws Error before any work is done if `output` may not be written: it exists and force is not set, or it is the
// same file as one of the inputs, which force would destroy.
void check_output(const std::string& output, bool force, const std::vector<std::string>& inputs);

}  // namespace logitgate
