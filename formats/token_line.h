// Parses one line of a token batch with simdjson. Internal to formats/token_jsonl.
// Contract: the whole line is checked to be valid JSON and UTF-8, the ignored fields too; errors name line and column.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "formats/token_jsonl.h"

namespace logitgate {

struct LinePlace {
  const std::string& file;
  uint64_t line_number;
};

class TokenLineParser {
 public:
  explicit TokenLineParser(const TokenLimits& limits);
  ~TokenLineParser();
  // Fills tokens, and id where the line has one (otherwise id is left empty). The line is followed by
  // kLinePadding readable bytes.
  void parse(std::string_view line, const LinePlace& place, TokenRecord& record);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace logitgate
