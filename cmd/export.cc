// `logitgate export`: writes a dump's logits as .npy or .safetensors, for other tools.
// Contract: one array (rows, n_vocab), record after record in the order of the dump; f64 for a dump that stores f64, else f32. A
// topk dump does not hold whole rows and is refused. Nothing but a .part is left where the dump is damaged.
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cmd/options.h"
#include "cmd/verbs.h"
#include "formats/dump_reader.h"
#include "formats/npy.h"
#include "formats/safetensors.h"
#include "lib/error.h"

namespace logitgate {
namespace {

struct ExportOptions {
  std::string input;
  std::string output;
  int threads = 0;
  bool force = false;
  ProgressMode progress = ProgressMode::auto_;
};

DumpReaderOptions reader_options(const ExportOptions& options) {
  DumpReaderOptions reading;
  reading.threads = options.threads;
  return reading;
}

template <class Writer>
void copy_rows(DumpReader& reader, Writer& writer, ProgressMode mode) {
  Progress progress("export", 0, 0, mode);
  uint64_t records = 0, tokens = 0;
  DumpRecord record;
  RowBlock block;
  while (reader.next_record(record)) {
    while (reader.next_rows(block)) {
      if (!block.f64.empty()) {
        writer.write(std::span<const double>(block.f64));
      } else {
        writer.write(std::span<const float>(block.f32));
      }
    }
    progress.update(++records, tokens += record.n_tokens);
  }
  writer.commit();
  progress.finish();
}

// A safetensors header tells the shape before the values come, so the dump is walked once for its rows.
uint64_t count_rows(const ExportOptions& options) {
  DumpReader reader(options.input, reader_options(options));
  uint64_t rows = 0;
  DumpRecord record;
  while (reader.next_record(record)) rows += record.positions.size();
  return rows;
}

std::map<std::string, std::string> safetensors_metadata(const DumpHeader& header) {
  return {{"format", "logits"},
          {"model_name", header.model_name},
          {"weights_digest", header.weights_digest},
          {"command", header.command},
          {"precision", header.precision},
          {"rows", header.rows},
          {"log_probs", header.log_probs ? "true" : "false"}};
}

int run(const ExportOptions& options) {
  const bool npy = options.output.ends_with(".npy");
  if (!npy && !options.output.ends_with(".safetensors")) {
    fail(ErrorCode::usage, "{}: no format goes by that name; expected OUT.npy or OUT.safetensors",
         options.output);
  }
  check_output(options.output, options.force, {options.input});
  OutputOptions writing;
  writing.force = options.force;
  DumpReader reader(options.input, reader_options(options));
  const DumpHeader& header = reader.header();
  if (header.store.type == StoreType::topk) {
    fail(ErrorCode::unsupported, "{}: stores {}, not whole rows; expected a dump of f32, f64, bf16 or f16",
         reader.name(), to_string(header.store));
  }
  const bool is_f64 = header.store.type == StoreType::f64;
  if (npy) {
    NpyWriter writer(options.output, is_f64, std::nullopt, header.n_vocab, writing);
    copy_rows(reader, writer, options.progress);
    return 0;
  }
  if (!reader.seekable()) {
    fail(ErrorCode::usage, "{}: cannot be read twice, as .safetensors needs; expected a file, or OUT.npy",
         reader.name());
  }
  const SafetensorsEntry logits{"logits", is_f64, {count_rows(options), header.n_vocab}};
  SafetensorsWriter writer(options.output, {logits}, safetensors_metadata(header), writing);
  copy_rows(reader, writer, options.progress);
  return 0;
}

}  // namespace

Verb add_export(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  app.add_option("DUMP", options->input, "The dump; - is stdin")->required();
  app.add_option("-o,--output", options->output, "OUT.npy or OUT.safetensors")->required()->type_name("FILE");
  add_threads(app, options->threads);
  add_force(app, options->force);
  add_progress(app, options->progress);
  app.footer(
      "Example:\n"
      "  logitgate export prefill.zst -o logits.npy\n"
      "  python3 -c 'import numpy; print(numpy.load(\"logits.npy\").shape)'");
  return [options] { return run(*options); };
}

}  // namespace logitgate
