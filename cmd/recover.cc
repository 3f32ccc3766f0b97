// `logitgate recover`: makes a finished dump of the records that are complete in a cut or damaged one.
// Contract: frames are copied as they are stored, so rows stay the same bits; the record in which the damage lies and all
// after it are left out. What was kept and where reading stopped is said on stderr.
#include <memory>
#include <string>

#include "cmd/options.h"
#include "cmd/verbs.h"
#include "formats/dump_reader.h"
#include "formats/output_file.h"
#include "lib/error.h"

namespace logitgate {
namespace {

struct RecoverOptions {
  std::string input;
  std::string output;
  bool force = false;
};

int run(const RecoverOptions& options) {
  check_output(options.output, options.force, {options.input});
  std::string damage;
  const uint64_t records = recover_dump(options.input, options.output, options.force, &damage);
  fmt::print(stderr, "{}: {} records recovered; {}\n", options.output == "-" ? "stdout" : options.output,
             records, damage.empty() ? "the dump was whole" : "reading stopped at " + damage);
  return 0;
}

}  // namespace

Verb add_recover(CLI::App& app) {
  auto options = std::make_shared<RecoverOptions>();
  app.add_option("CUT", options->input, "The cut or damaged dump")->required();
  app.add_option("-o,--output", options->output, "Where the finished dump goes; - is stdout")
      ->required()
      ->type_name("FILE");
  add_force(app, options->force);
  app.footer(
      "Example: what a killed run left, as a dump that compare and gate accept\n"
      "  logitgate recover prefill.zst.part -o prefill.zst");
  return [options] { return run(*options); };
}

}  // namespace logitgate
