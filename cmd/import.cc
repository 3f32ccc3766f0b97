// `logitgate import`: makes a dump of another engine's logits, given as a .npy array beside the tokens they belong to.
// Contract: the array is [rows, n_vocab], record after record in the order of the tokens. As many rows as tokens is
// `--rows all`, as many as records is `--rows last`, anything else is trouble. Values are taken as they are.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "cmd/options.h"
#include "cmd/verbs.h"
#include "cmd/version.h"
#include "formats/dump_writer.h"
#include "formats/npy.h"
#include "formats/output_file.h"
#include "formats/token_jsonl.h"
#include "lib/error.h"

namespace logitgate {
namespace {

constexpr size_t kChunkValues = size_t{1} << 20;  // values read and coded at once

struct ImportOptions {
  std::string logits;
  std::string tokens;
  std::string output;
  std::string model_name;
  StoreSpec store;
  bool store_given = false;
  bool log_probs = false;
  int64_t records = 0;  // the first so many; 0: all
  int level = DumpWriterOptions{}.level;
  int threads = 0;
  bool force = false;
  ProgressMode progress = ProgressMode::auto_;
};

struct Shape {
  uint64_t rows = 0;
  uint32_t n_vocab = 0;
};

// [rows, n_vocab], or [1, rows, n_vocab] as frameworks give it for one record.
Shape read_shape(const std::string& path, std::vector<uint64_t> shape) {
  while (shape.size() > 2 && shape.front() == 1) shape.erase(shape.begin());
  if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0 || shape[1] > INT32_MAX) {
    fail(ErrorCode::unsupported, "{}: shape ({}): not logits; expected (rows, n_vocab)", path,
         fmt::join(shape, ", "));
  }
  return {shape[0], static_cast<uint32_t>(shape[1])};
}

// Ids, lengths and digests of the records; the tokens themselves are not kept.
std::vector<DumpRecord> read_records(const ImportOptions& options, uint32_t n_vocab) {
  TokenLimits limits;
  limits.n_vocab = n_vocab;
  TokenReader reader({options.tokens}, limits);
  std::vector<DumpRecord> records;
  TokenRecord tokens;
  while ((options.records == 0 || records.size() < static_cast<uint64_t>(options.records)) &&
         reader.next(tokens)) {
    DumpRecord& record = records.emplace_back();
    record.id = tokens.id;
    record.index = tokens.index;
    record.n_tokens = static_cast<uint32_t>(tokens.tokens.size());
    record.tokens_digest = digest_tokens(tokens.tokens);
  }
  if (options.records != 0 && records.size() < static_cast<uint64_t>(options.records)) {
    fail(ErrorCode::usage, "--records {}: {} has {} records only", options.records, options.tokens,
         records.size());
  }
  return records;
}

// The leading records that have as many tokens as the array has rows, to be named in the error; 0 where none do.
size_t matching_prefix(const std::vector<DumpRecord>& records, uint64_t rows) {
  uint64_t tokens = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    tokens += records[i].n_tokens;
    if (tokens == rows) return i + 1;
  }
  return 0;
}

RowSelection choose_rows(const ImportOptions& options, const std::vector<DumpRecord>& records,
                         uint64_t rows) {
  const auto add = [](uint64_t sum, const DumpRecord& record) { return sum + record.n_tokens; };
  const uint64_t tokens = std::accumulate(records.begin(), records.end(), uint64_t{0}, add);
  if (rows == tokens)
    return RowSelection::all();  // also where every record is one token long: then both mean the same
  if (rows == records.size()) return RowSelection::last();
  const size_t prefix = matching_prefix(records, rows);
  fail(ErrorCode::incomparable,
       "{}: {} rows for {} records of {} tokens in all ({}); expected {} rows (all) or {} (last){}",
       options.logits, rows, records.size(), tokens, options.tokens, tokens, records.size(),
       prefix == 0 ? "" : fmt::format(", or --records {}", prefix));
}

DumpHeader make_header(const ImportOptions& options, const RowSelection& rows, uint32_t n_vocab,
                       bool is_f64) {
  DumpHeader header;
  header.model_name = options.model_name;
  header.command = "import";
  header.precision = is_f64 ? "f64" : "f32";
  header.tool = tool_name();
  header.rows = to_string(rows);
  header.log_probs = options.log_probs;
  header.store = options.store;
  if (!options.store_given && is_f64) header.store.type = StoreType::f64;
  header.n_vocab = n_vocab;
  return header;
}

template <class T>
void copy_rows(NpyReader& array, DumpWriter& writer, uint64_t ticket, uint64_t rows, uint32_t n_vocab) {
  const uint64_t most = std::max<uint64_t>(1, kChunkValues / n_vocab);
  std::vector<T> values;
  for (uint64_t done = 0; done < rows;) {
    const auto n = static_cast<uint32_t>(std::min(most, rows - done));
    values.resize(size_t{n} * n_vocab);
    array.read(std::span<T>(values));
    writer.add_rows(ticket, std::span<const T>(values), n);
    done += n;
  }
}

int run(const ImportOptions& options) {
  check_output(options.output, options.force, {options.logits, options.tokens});
  NpyReader array(options.logits);
  const Shape shape = read_shape(options.logits, array.shape());
  std::vector<DumpRecord> records = read_records(options, shape.n_vocab);
  const RowSelection rows = choose_rows(options, records, shape.rows);
  DumpWriterOptions writing;
  writing.level = options.level;
  writing.threads = options.threads;
  writing.force = options.force;
  DumpWriter writer(options.output, make_header(options, rows, shape.n_vocab, array.is_f64()), writing);
  Progress progress("import", records.size(), 0, options.progress);
  uint64_t done = 0, tokens = 0;
  for (DumpRecord& record : records) {
    record.positions = rows.select(record.n_tokens);
    const uint64_t ticket = writer.begin_record(record);
    const auto copy = array.is_f64() ? copy_rows<double> : copy_rows<float>;
    copy(array, writer, ticket, record.positions.size(), shape.n_vocab);
    progress.update(++done, tokens += record.n_tokens);
    record.positions = {};
  }
  writer.finish();
  progress.finish();
  return 0;
}

}  // namespace

Verb add_import(CLI::App& app) {
  auto options = std::make_shared<ImportOptions>();
  app.add_option("LOGITS", options->logits, "A .npy array of f2, f4 or f8: (rows, n_vocab)")->required();
  app.add_option("--tokens", options->tokens, "The token batch that the rows belong to; - is stdin")
      ->required()
      ->type_name("IN.jsonl");
  app.add_option("-o,--output", options->output, "Dump to write; - is stdout")->required()->type_name("FILE");
  add_integer(app, "--records", options->records, 1, INT64_MAX,
              "Only the first N records of the batch have rows");
  app.add_flag("--log-probs", options->log_probs, "The values are log-probabilities, not logits");
  app.add_option("--model-name", options->model_name, "What the dump is to say its model is")
      ->type_name("NAME");
  CLI::Option* store = add_store(app, options->store);
  add_level(app, options->level);
  add_threads(app, options->threads);
  add_force(app, options->force);
  add_progress(app, options->progress);
  app.footer(
      "Example: gate against the logits of another engine\n"
      "  logitgate import logits.npy --tokens prompts.jsonl -o other.zst\n"
      "  logitgate gate other.zst prefill.zst --rows all\n"
      "Without --store the array's own precision is kept: f64 for f8, else f32.");
  return [options, store] {
    options->store_given = store->count() > 0;
    return run(*options);
  };
}

}  // namespace logitgate
