// Reads token batches: JSON lines with an id and tokens, plain or zstd-compressed, from files or stdin.
// Contract: streams; memory does not grow with the file beyond the ids seen (at most 56 bytes a record) and the
// longest line (refused beyond 64 MiB). A line is {"tokens": [ids], "id": string or integer, …}; `input_ids` and
// `prompt_token_ids` are other names of `tokens`; other fields may hold any valid JSON up to 128 levels deep. A bad line
// gives Error{corrupt} with file, line and column, the column in bytes from 1. Errors of reading: formats/line_reader.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace logitgate {

struct TokenRecord {
  std::string id;      // 1 to 65,536 bytes of valid UTF-8, unique over all inputs
  uint64_t index = 0;  // 0-based over all inputs
  std::vector<int32_t> tokens;
};

struct TokenLimits {
  int64_t n_vocab = 0;     // a token outside [0, n_vocab) is an error; 0: any non-negative int32
  int64_t max_tokens = 0;  // a longer record is an error, or is cut with truncate; 0: any length
  bool truncate = false;
};

class TokenReader {
 public:
  // inputs: paths (zstd-compressed content is decompressed, whatever the name), or "-" for stdin, once.
  TokenReader(std::vector<std::string> inputs, const TokenLimits& limits);
  ~TokenReader();
  // The next record of the inputs in order; false at the end. Errors as above, for a duplicate id, and at the end
  // where there was no record at all.
  bool next(TokenRecord& record);
  // True where every input is a regular file (stdin too), so that it can be read twice (validated before
  // compute starts).
  static bool rereadable(const std::vector<std::string>& inputs);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct TokenTotals {
  uint64_t records = 0;
  uint64_t tokens = 0;
  uint64_t longest = 0;
};
// Reads all inputs once, throwing for the first bad line, a duplicate id, or no record at all.
TokenTotals validate_tokens(const std::vector<std::string>& inputs, const TokenLimits& limits);

}  // namespace logitgate
