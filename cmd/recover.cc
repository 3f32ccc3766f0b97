// `logitgate recover`: makes a finished dump of the records that are complete in a cut or damaged one.
// Contract: rows are copied as they are stored, so they stay the same bits; the record in which the damage lies and all
// after it are left out. What was kept and where reading stopped is said on stderr.
#include <memory>
#include <string>

#include "cmd/options.h"
#include "cmd/verbs.h"
#include "formats/dump_reader.h"
#include "formats/dump_writer.h"
#include "formats/output_file.h"
#include "lib/error.h"

namespace logitgate {
namespace {

struct RecoverOptions {
  std::string input;
  std::string output;
  int level = DumpWriterOptions{}.level;
  int threads = 0;
  bool force = false;
  ProgressMode progress = ProgressMode::auto_;
};

int run(const RecoverOptions& options) {
  check_output_is_free(options.output, options.force);
  DumpReaderOptions reading;
  reading.threads = options.threads;
  reading.salvage = true;
  DumpReader reader(options.input, reading);
  DumpWriterOptions writing;
  writing.level = options.level;
  writing.threads = options.threads;
  writing.force = options.force;
  DumpWriter writer(options.output, reader.header(), writing);

  Progress progress("recover", 0, 0, options.progress);
  DumpRecord record;
  RowBlock block;
  uint64_t records = 0, tokens = 0;
  while (reader.next_record(record)) {
    const uint64_t ticket = writer.begin_record(record);
    while (reader.next_rows(block)) writer.add_block(ticket, block);
    progress.update(++records, tokens += record.n_tokens);
  }
  writer.finish();
  progress.finish();
  const std::optional<std::string> damage = reader.damage();
  fmt::print(stderr, "{}: {} records recovered; {}\n", options.output == "-" ? "stdout" : options.output,
             records, damage ? "reading stopped at " + *damage : "the dump was whole");
  return 0;
}

}  // namespace

Verb add_recover(CLI::App& app) {
  auto options = std::make_shared<RecoverOptions>();
  app.add_option("CUT", options->input, "The cut or damaged dump; - is stdin")->required();
  app.add_option("-o,--output", options->output, "Where the finished dump goes; - is stdout")
      ->required()
      ->type_name("FILE");
  add_level(app, options->level);
  add_threads(app, options->threads);
  add_force(app, options->force);
  add_progress(app, options->progress);
  app.footer(
      "Example: what a killed run left, as a dump that compare and gate accept\n"
      "  logitgate recover prefill.zst.part -o prefill.zst");
  return [options] { return run(*options); };
}

}  // namespace logitgate
