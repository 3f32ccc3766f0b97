// Runs the engine as the verbs do, from a model file and a batch of records to a dump, for tests.
// Contract: everything lands in a fresh directory that goes with the object.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "formats/dump_reader.h"
#include "formats/dump_writer.h"
#include "formats/token_jsonl.h"
#include "kernels/backends.h"
#include "lib/runner.h"

namespace logitgate::testing {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "logitgate-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}
inline void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

struct EngineRun {
  std::string model;
  std::string tokens;  // path of a .jsonl
  Phase phase = Phase::prefill;
  Precision precision = Precision::f32;
  std::string device = "cpu";
  int threads = 2;
  StoreSpec store;
  RunOptions options;
};

// Writes the dump of the run to `output`.
inline RunTotals run_engine(const EngineRun& run, const std::string& output) {
  const ModelFile file = ModelFile::open(run.model);
  const auto backend = make_backend({run.device, run.precision, run.threads});
  const auto model = make_architecture(file, *backend);
  DumpHeader header;
  header.architecture = file.architecture();
  header.command = run.phase == Phase::prefill ? "prefill" : "decode-prime";
  header.precision = run.precision == Precision::f64 ? "f64" : "f32";
  header.backend = backend->name();
  header.store = run.store;
  header.n_vocab = static_cast<uint32_t>(model->config().n_vocab);
  DumpWriterOptions writer_options;
  writer_options.threads = run.threads;
  DumpWriter writer(output, header, writer_options);
  TokenReader reader({run.tokens}, {model->config().n_vocab, model->config().n_ctx, false});
  const auto loop = run.phase == Phase::prefill ? run_prefill : run_decode_prime;
  const RunTotals totals = loop(*model, *backend, reader, writer, run.options);
  writer.finish();
  return totals;
}

struct DumpedRecord {
  DumpRecord record;
  std::vector<double> logits;  // [positions, n_vocab]
};
inline std::vector<DumpedRecord> read_dump(const std::string& path) {
  DumpReader reader(path, {});
  std::vector<DumpedRecord> records;
  DumpRecord record;
  while (reader.next_record(record)) {
    records.push_back({record, {}});
    RowBlock block;
    while (reader.next_rows(block)) {
      std::vector<double>& logits = records.back().logits;
      logits.insert(logits.end(), block.f32.begin(), block.f32.end());
      logits.insert(logits.end(), block.f64.begin(), block.f64.end());
    }
  }
  return records;
}

}  // namespace logitgate::testing
