// The run behind prefill and decode-prime: model, backend, inputs, dump.
// Contract: in engine_verb.h.
#include "cmd/engine_verb.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cmd/options.h"
#include "cmd/version.h"
#include "formats/dump_writer.h"
#include "formats/output_file.h"
#include "formats/token_jsonl.h"
#include "kernels/backends.h"
#include "lib/error.h"
#include "lib/runner.h"

namespace logitgate {
namespace {

struct EngineOptions {
  std::vector<std::string> inputs;
  std::string model, output;
  std::string device = "auto", precision = "f32";
  RowSelection rows = RowSelection::last();
  StoreSpec store;
  Shard shard;
  int level = DumpWriterOptions{}.level;
  int threads = 0;
  int64_t width = 0;  // --batch-tokens or --lanes; 0: chosen from memory
  bool truncate = false, force = false, resume = false;
  ProgressMode progress = ProgressMode::auto_;
};

const char* command_name(Phase phase) { return phase == Phase::prefill ? "prefill" : "decode-prime"; }

Precision parse_precision(const std::string& text) {
  const std::pair<const char*, Precision> names[] = {{"f32", Precision::f32},
                                                     {"f64", Precision::f64},
                                                     {"f32x3", Precision::f32x3},
                                                     {"tf32", Precision::tf32},
                                                     {"bf16", Precision::bf16}};
  for (const auto& [name, precision] : names)
    if (text == name) return precision;
  fail(ErrorCode::usage, "--precision: '{}' is not one; expected f32, f64, f32x3, tf32 or bf16", text);
}

// IN.jsonl, IN.jsonl.zst → IN.prefill.zst; with a shard IN.prefill.I-of-N.zst.
std::string default_output(const EngineOptions& o, Phase phase) {
  if (o.inputs.size() > 1)
    fail(ErrorCode::usage, "--output: several inputs need -o FILE, or -o - for stdout");
  std::string stem = o.inputs[0];
  if (stem == "-") return "-";
  for (const char* suffix : {".zst", ".jsonl"})
    if (stem.ends_with(suffix)) stem.resize(stem.size() - std::string_view(suffix).size());
  const std::string share = o.shard.given ? fmt::format(".{}-of-{}", o.shard.index, o.shard.count) : "";
  return fmt::format("{}.{}{}.zst", stem, command_name(phase), share);
}

void check_options(EngineOptions& o, Phase phase) {
  require_model(o.model);
  if (o.inputs.size() > 1 && std::find(o.inputs.begin(), o.inputs.end(), "-") != o.inputs.end())
    fail(ErrorCode::usage, "inputs: '-' stands alone; expected files, or - for stdin");
  for (const std::string& input : o.inputs)
    if (input != "-" && ::access(input.c_str(), R_OK) != 0) fail_errno(input, "open");
  if (o.output.empty()) o.output = default_output(o, phase);
  if (o.resume && o.output == "-")
    fail(ErrorCode::usage, "--resume: stdout cannot be continued; expected -o FILE");
  if (o.resume && o.force) fail(ErrorCode::usage, "--resume and --force exclude each other");
  std::vector<std::string> inputs = o.inputs;
  inputs.push_back(o.model);
  if (!o.resume) check_output(o.output, o.force, inputs);
}

DumpHeader make_header(const EngineOptions& o, Phase phase, const ModelFile& file, const Backend& backend,
                       const ModelConfig& config) {
  DumpHeader header;
  header.model_name = file.name();
  header.architecture = file.architecture();
  header.weights_digest = weights_digest(file, o.threads);
  header.weights_types = weights_types(file);
  header.command = command_name(phase);
  header.precision = o.precision;
  header.backend = backend.name();
  header.device = backend.device();
  header.algorithms = backend.algorithms();
  header.tool = tool_name();
  header.rows = to_string(o.rows);
  header.store = o.store;
  header.n_vocab = static_cast<uint32_t>(config.n_vocab);
  header.shard_index = o.shard.index;
  header.shard_count = o.shard.count;
  return header;
}

int run(EngineOptions o, Phase phase) {
  check_options(o, phase);
  const Precision precision = parse_precision(o.precision);
  const ModelFile file = ModelFile::open(o.model);
  const std::unique_ptr<Backend> backend = make_backend({o.device, precision, o.threads});
  const std::unique_ptr<Architecture> model = make_architecture(file, *backend);
  const ModelConfig& config = model->config();
  const TokenLimits limits{config.n_vocab, config.n_ctx, o.truncate};
  TokenTotals totals;
  if (TokenReader::rereadable(o.inputs)) totals = validate_tokens(o.inputs, limits);

  DumpWriterOptions writer_options;
  writer_options.level = o.level;
  writer_options.threads = o.threads;
  writer_options.force = o.force;
  writer_options.resume = o.resume;
  DumpWriter writer(o.output, make_header(o, phase, file, *backend, config), writer_options);

  RunOptions run_options;
  run_options.rows = o.rows;
  (phase == Phase::prefill ? run_options.batch_tokens : run_options.lanes) = static_cast<int32_t>(o.width);
  run_options.longest_record = static_cast<int32_t>(totals.longest);
  run_options.shard_index = o.shard.index;
  run_options.shard_count = o.shard.count;
  // Totals of a shard are not known; a share of them would be a guess.
  const bool whole = o.shard.count == 1;
  Progress progress(command_name(phase), whole ? totals.records : 0, whole ? totals.tokens : 0, o.progress);
  run_options.progress = [&](uint64_t records, uint64_t tokens) { progress.update(records, tokens); };
  TokenReader reader(o.inputs, limits);
  const auto loop = phase == Phase::prefill ? run_prefill : run_decode_prime;
  loop(*model, *backend, reader, writer, run_options);
  writer.finish();
  progress.finish();
  return 0;
}

}  // namespace

Verb add_engine_verb(CLI::App& app, Phase phase) {
  auto o = std::make_shared<EngineOptions>();
  app.add_option("IN", o->inputs, "Token batches: JSON lines, also .jsonl.zst; - is stdin")->required();
  add_model(app, o->model);
  app.add_option("-o,--output", o->output, "Dump to write; - is stdout")
      ->type_name("FILE")
      ->check(
          [](const std::string& path) { return path.empty() ? "an empty name; expected FILE or -" : ""; });
  app.add_flag("--truncate", o->truncate,
               "Cut records longer than the model's context instead of refusing them");
  app.add_option("--device", o->device, "auto, cpu, cuda or cuda:N (default: auto)")->type_name("DEVICE");
  app.add_option("--precision", o->precision, "f32, f64, f32x3, tf32 or bf16 (default: f32)")->type_name("P");
  add_rows(app, o->rows, "Positions whose logits are kept (default: last)");
  add_store(app, o->store);
  add_level(app, o->level);
  if (phase == Phase::prefill)
    add_integer(app, "--batch-tokens", o->width, 1, 1 << 20,
                "Tokens in one GEMM (default: chosen from memory)");
  else
    add_integer(app, "--lanes", o->width, 1, 1 << 14,
                "Records advanced in lockstep (default: chosen from memory)");
  add_threads(app, o->threads);
  add_shard(app, o->shard);
  app.add_flag("--resume", o->resume, "Continue an interrupted output");
  add_force(app, o->force);
  add_progress(app, o->progress);
  return [o, phase] { return run(*o, phase); };
}

}  // namespace logitgate
