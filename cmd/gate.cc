// `logitgate gate`: judges whether two dumps differ by rounding or by a defect.
// Contract: exit 0 where the gate passes, 1 where it fails. A JUnit output tells trouble too, as an error.
#include "lib/gate.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include "cmd/options.h"
#include "cmd/verbs.h"
#include "formats/output_file.h"
#include "lib/error.h"
#include "lib/report.h"

namespace logitgate {
namespace {

struct GateVerb {
  std::string reference, candidate;
  BoundTexts bounds;
  RowSelection rows = RowSelection::last();
  GateOptions options;
  bool json = false;
  bool json_rows_all = false;
  std::string junit;
  bool allow_mixed = false;
  bool force = false;
  ProgressMode progress = ProgressMode::auto_;
};

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void write_junit(const GateVerb& verb, const std::string& page) {
  if (verb.junit.empty()) return;
  OutputOptions options;
  options.binary = false;
  options.force = verb.force;
  OutputFile file(verb.junit, options);
  file.write(page);
  file.commit();
}

GateResult judge(const GateVerb& verb) {
  GateOptions options = verb.options;
  options.bounds =
      resolve_bounds(verb.bounds, [](const char* name) -> const char* { return std::getenv(name); });
  DumpPair dumps(open_dumps(verb.reference, verb.candidate, {options.threads, verb.allow_mixed}), verb.rows);
  Progress progress("gate", 0, 0, verb.progress);
  options.on_progress = [&progress](uint64_t records, uint64_t rows) { progress.update(records, rows); };
  const bool stream = verb.json && verb.json_rows_all;
  if (stream) {
    print(gate_json_begin());
    options.on_row = [](const GateRow& row) { print((row.order > 0 ? ",\n" : "") + gate_json_row(row)); };
  }
  GateResult result = run_gate(dumps, options);
  progress.finish();
  print(stream ? gate_json_end(result) : verb.json ? gate_json(result) : gate_table(result));
  return result;
}

int run(const GateVerb& verb) {
  if (verb.json_rows_all && !verb.json) fail(ErrorCode::usage, "--json-rows: only together with --json");
  if (verb.junit == "-") fail(ErrorCode::usage, "--junit: '-' is not a file; stdout has the verdict");
  if (!verb.junit.empty()) check_output(verb.junit, verb.force, {verb.reference, verb.candidate});
  std::optional<GateResult> result;
  try {
    result = judge(verb);
  } catch (const Error& error) {
    write_junit(verb, trouble_junit(error.message()));  // the trouble itself goes on to main.cc
    throw;
  }
  write_junit(verb, gate_junit(*result));
  return result->pass ? 0 : 1;
}

void add_bounds(CLI::App& app, BoundTexts& bounds) {
  app.add_option(
         "--max-diff", bounds.max_diff,
         fmt::format("Ceiling of max |R - C| over the vocabulary; auto: {} times the drift that the two\n"
                     "precisions lead one to expect (default: $LOGITGATE_MAX_DIFF, else {})",
                     ExpectedDrift::kAutoFactor, kDefaultMaxDiff))
      ->type_name("X|auto");
  app.add_option(
         "--margin", bounds.margin,
         fmt::format("Widest top-two margin of the reference at which a flip of the argmax is a near tie\n"
                     "(default: $LOGITGATE_MARGIN, else {})",
                     kDefaultMargin))
      ->type_name("X");
  app.add_option("--max-kl", bounds.max_kl, "Fail where a row's KL(reference || candidate) exceeds X nats")
      ->type_name("X");
  app.add_option("--min-top1", bounds.min_top1, "Fail where a smaller share of the rows has the same argmax")
      ->type_name("X");
}

}  // namespace

Verb add_gate(CLI::App& app) {
  auto verb = std::make_shared<GateVerb>();
  app.add_option("REF", verb->reference, "The reference dump (tokenwise decode); - is stdin")->required();
  app.add_option("CAND", verb->candidate, "The candidate dump (batched prefill); - is stdin")->required();
  add_bounds(app, verb->bounds);
  add_rows(app, verb->rows, "Positions to judge (default: last)");
  app.add_flag("--strict", verb->options.strict, "Near-tie flips fail too");
  app.add_flag("--allow-inf", verb->options.allow_inf,
               "Accept the same infinity in the same place of both rows");
  app.add_flag("--fail-fast", verb->options.fail_fast, "Stop at the first structured row");
  app.add_flag("--allow-mixed", verb->allow_mixed,
               "Accept a dump whose segments come from other devices, algorithms or versions");
  app.add_flag("--json", verb->json, "Print one JSON object instead of the table");
  app.add_option_function<std::string>(
         "--json-rows",
         [verb](const std::string& text) {
           if (text != "all" && text != "worst") {
             fail(ErrorCode::usage, "--json-rows: '{}' is not a choice; expected worst or all", text);
           }
           verb->json_rows_all = text == "all";
         },
         "Rows in the JSON: those that do not match (10,000 at most) and the worst 100 matches, or all")
      ->type_name("worst|all");
  app.add_option("--junit", verb->junit, "Write the verdict as JUnit XML")->type_name("FILE");
  add_force(app, verb->force);
  add_threads(app, verb->options.threads);
  add_progress(app, verb->progress);
  app.footer(
      "A row is structured where a logit is not finite, where the drift exceeds the ceiling, or where the "
      "argmax flips\n"
      "at a wider margin than the bound. Exit codes: 0 the gate passes, 1 it fails, 2 trouble.\n"
      "\n"
      "Example:\n"
      "  logitgate gate decode.zst prefill.zst\n"
      "  logitgate gate decode.zst prefill.zst --rows all --max-diff auto --junit gate.xml");
  return [verb] { return run(*verb); };
}

}  // namespace logitgate
