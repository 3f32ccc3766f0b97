// Implements token_jsonl.h: inputs one after another, ids, totals.
// Contract: as there; every pass checks every line again, so a file that changes between two passes is still checked.
#include "formats/token_jsonl.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "formats/id_set.h"
#include "formats/line_reader.h"
#include "formats/text.h"
#include "formats/token_line.h"
#include "lib/error.h"

namespace logitgate {

struct TokenReader::Impl {
  Impl(std::vector<std::string> paths, const TokenLimits& limits)
      : inputs(std::move(paths)), parser(limits) {}

  // The next line that is not blank, over all inputs.
  bool next_line(std::string_view& line) {
    for (;;) {
      if (reader == nullptr) {
        if (next_input == inputs.size()) return false;
        reader = std::make_unique<LineReader>(inputs[next_input++]);
      }
      while (reader->next(line)) {
        if (line.find_first_not_of(" \t\r") != std::string_view::npos) return true;
      }
      reader.reset();
    }
  }

  std::vector<std::string> inputs;
  TokenLineParser parser;
  size_t next_input = 0;
  std::unique_ptr<LineReader> reader;
  uint64_t n_records = 0;
  IdSet ids;
};

namespace {

[[noreturn]] void fail_empty(const std::vector<std::string>& inputs) {
  const std::string name = inputs.size() != 1 ? "the inputs" : inputs[0] == "-" ? "stdin" : inputs[0];
  fail(ErrorCode::corrupt, "{}: holds no record; give JSON lines like {{\"id\": \"a\", \"tokens\": [1, 2]}}",
       name);
}

}  // namespace

TokenReader::TokenReader(std::vector<std::string> inputs, const TokenLimits& limits) {
  if (std::count(inputs.begin(), inputs.end(), "-") > 1)
    fail(ErrorCode::usage, "-: stdin is named twice; once is enough");
  impl_ = std::make_unique<Impl>(std::move(inputs), limits);
}
TokenReader::~TokenReader() = default;

bool TokenReader::next(TokenRecord& record) {
  std::string_view line;
  if (!impl_->next_line(line)) {
    if (impl_->n_records == 0) fail_empty(impl_->inputs);
    return false;
  }
  const LinePlace place{impl_->reader->name(), impl_->reader->line_number()};
  impl_->parser.parse(line, place, record);
  record.index = impl_->n_records++;
  if (record.id.empty()) record.id = std::to_string(record.index);
  if (!impl_->ids.insert(record.id)) {
    fail(ErrorCode::corrupt,
         "{}: line {}, column {}: an earlier record has the id '{}' too, and ids must be unique", place.file,
         place.line_number, line.find('{') + 1, printable(record.id));
  }
  return true;
}

bool TokenReader::rereadable(const std::vector<std::string>& inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [](const std::string& path) {
    struct stat info {};
    const int failed = path == "-" ? ::fstat(STDIN_FILENO, &info) : ::stat(path.c_str(), &info);
    return failed == 0 && S_ISREG(info.st_mode);
  });
}

TokenTotals validate_tokens(const std::vector<std::string>& inputs, const TokenLimits& limits) {
  TokenReader reader(inputs, limits);
  TokenRecord record;
  TokenTotals totals;
  while (reader.next(record)) {
    ++totals.records;
    totals.tokens += record.tokens.size();
    totals.longest = std::max<uint64_t>(totals.longest, record.tokens.size());
  }
  return totals;
}

}  // namespace logitgate
