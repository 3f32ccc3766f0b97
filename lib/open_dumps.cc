// Opens two dumps for DumpPair; see dump_pair.h.
// Contract: an adapter of formats/dump_reader.h and nothing more.
#include <memory>
#include <string>
#include <utility>

#include "formats/dump_reader.h"
#include "lib/dump_pair.h"
#include "lib/error.h"

namespace logitgate {
namespace {

class ReaderSource : public RecordSource {
 public:
  ReaderSource(std::string input, const DumpReaderOptions& options)
      : input_(std::move(input)), options_(options), reader_(input_, options) {}
  const std::string& name() const override { return reader_.name(); }
  const DumpHeader& header() const override { return reader_.header(); }
  bool seekable() const override { return reader_.seekable(); }
  bool next_record(DumpRecord& record) override { return reader_.next_record(record); }
  bool next_rows(RowBlock& block) override { return reader_.next_rows(block); }
  bool find_record(const std::string& id, DumpRecord& record) override {
    return reader_.find_record(id, record);
  }
  uint64_t n_records() override { return reader_.n_records(); }
  std::unique_ptr<RecordSource> reopen() override { return std::make_unique<ReaderSource>(input_, options_); }

 private:
  std::string input_;
  DumpReaderOptions options_;
  DumpReader reader_;
};

}  // namespace

SourcePair open_dumps(const std::string& reference, const std::string& candidate,
                      const OpenOptions& options) {
  if (reference == "-" && candidate == "-") {
    fail(ErrorCode::usage, "REF and CAND are both -; only one of them can be stdin");
  }
  DumpReaderOptions reader;
  reader.threads = options.threads;
  reader.allow_mixed = options.allow_mixed;
  return {std::make_unique<ReaderSource>(reference, reader),
          std::make_unique<ReaderSource>(candidate, reader)};
}

}  // namespace logitgate
