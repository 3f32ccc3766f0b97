// The verbs of the command line: each lives in the file of its name and is one line of the table in main.cc.
// Contract: add_VERB declares the options and the help footer (`Example:` …) of its verb on `app` and returns
// what runs it once the command line is parsed: exit code 0 (same, passed, done) or 1 (different, failed).
// Trouble is an Error, thrown and never caught here: main.cc turns it into one line and exit code 2.
//
//   Verb add_compare(CLI::App& app) {
//     auto options = std::make_shared<CompareOptions>();
//     app.add_option("REF", options->reference, "…")->required();
//     app.footer("Example:\n  logitgate compare decode.zst prefill.zst");
//     return [options] { return run(*options); };
//   }
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace logitgate {

using Verb = std::function<int()>;

Verb add_prefill(CLI::App& app);
Verb add_decode_prime(CLI::App& app);
Verb add_compare(CLI::App& app);
Verb add_gate(CLI::App& app);
Verb add_inspect(CLI::App& app);
Verb add_recover(CLI::App& app);
Verb add_export(CLI::App& app);
Verb add_import(CLI::App& app);

}  // namespace logitgate
