// `logitgate compare`: measures how two dumps differ.
// Contract: exit 0 where every compared row is bit-identical, else 1. The CSV and HTML outputs are complete or absent; those
// that exist are refused before either dump is read.
#include "lib/compare.h"

#include <cstdio>
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

struct CompareVerb {
  std::string reference, candidate;
  RowSelection rows = RowSelection::all();
  bool json = false;
  std::string csv, html, vocab;
  bool allow_mixed = false;
  bool force = false;
  int threads = 0;
  ProgressMode progress = ProgressMode::auto_;
};

std::optional<OutputFile> open_text(const std::string& path, bool force) {
  OutputOptions options;
  options.binary = false;
  options.force = force;
  return path.empty() ? std::nullopt : std::optional<OutputFile>(std::in_place, path, options);
}

int run(const CompareVerb& verb) {
  if (verb.csv == "-" && verb.html == "-")
    fail(ErrorCode::usage, "--csv and --html are both -; only one can be stdout");
  if (!verb.csv.empty() && verb.csv == verb.html)
    fail(ErrorCode::usage, "--csv and --html are both {}; expected two files", verb.csv);
  const bool stdout_taken = verb.csv == "-" || verb.html == "-";
  if (stdout_taken && verb.json)
    fail(ErrorCode::usage, "--json goes to stdout; --csv and --html then need a file");
  for (const std::string* path : {&verb.csv, &verb.html}) {
    if (!path->empty()) check_output(*path, verb.force, {verb.reference, verb.candidate, verb.vocab});
  }
  const TokenNames names = verb.vocab.empty() ? TokenNames() : load_token_names(verb.vocab);
  DumpPair dumps(open_dumps(verb.reference, verb.candidate, {verb.threads, verb.allow_mixed}), verb.rows);
  std::optional<OutputFile> csv = open_text(verb.csv, verb.force);
  std::optional<OutputFile> html = open_text(verb.html, verb.force);
  Progress progress("compare", 0, 0, verb.progress);
  CompareOptions options;
  options.threads = verb.threads;
  options.on_progress = [&progress](uint64_t records, uint64_t rows) { progress.update(records, rows); };
  if (csv) {
    csv->write(csv_header(names));
    options.on_row = [&](const RowKey& key, const RowStats& row) { csv->write(csv_row(key, row, names)); };
  }
  const CompareResult result = run_compare(dumps, options);
  progress.finish();
  if (html) html->write(compare_html(result, names));
  if (csv) csv->commit();
  if (html) html->commit();
  if (!stdout_taken) {
    const std::string text = verb.json ? compare_json(result, names) : compare_table(result, names);
    std::fwrite(text.data(), 1, text.size(), stdout);
  }
  return result.identical() ? 0 : 1;
}

}  // namespace

Verb add_compare(CLI::App& app) {
  auto verb = std::make_shared<CompareVerb>();
  app.add_option("REF", verb->reference, "The reference dump; - is stdin")->required();
  app.add_option("CAND", verb->candidate, "The candidate dump; - is stdin")->required();
  add_rows(app, verb->rows, "Positions to compare (default: all that either dump holds)");
  app.add_flag("--json", verb->json, "Print one JSON object instead of the table");
  app.add_option("--csv", verb->csv, "Write a line for every row; - is stdout")->type_name("FILE");
  app.add_option("--html", verb->html, "Write a page with tables and plots by position; - is stdout")
      ->type_name("FILE");
  app.add_option("--vocab", verb->vocab, "GGUF model whose vocabulary names the tokens")->type_name("MODEL");
  app.add_flag("--allow-mixed", verb->allow_mixed,
               "Accept a dump whose segments come from other devices, algorithms or versions");
  add_force(app, verb->force);
  add_threads(app, verb->threads);
  add_progress(app, verb->progress);
  app.footer(
      "KLD is KL(reference || candidate) in nats. Exit codes: 0 every compared row is bit-identical, 1 not, "
      "2 trouble.\n"
      "\n"
      "Example:\n"
      "  logitgate compare decode.zst prefill.zst\n"
      "  logitgate compare decode.zst prefill.zst --rows last --json --csv rows.csv --html page.html");
  return [verb] { return run(*verb); };
}

}  // namespace logitgate
