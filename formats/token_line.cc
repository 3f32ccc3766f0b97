// Implements token_line.h over simdjson's on-demand parser, visiting every value once.
// Contract: recursion is bounded by kMaxDepth; numbers and literals are judged here, structure and strings by simdjson.
#include "formats/token_line.h"

#include <simdjson.h>

#include <limits>

#include "formats/dump_format.h"
#include "formats/line_reader.h"
#include "formats/text.h"
#include "lib/error.h"

namespace logitgate {
namespace {

namespace sj = simdjson::ondemand;
static_assert(simdjson::SIMDJSON_PADDING <= kLinePadding);

constexpr int kMaxDepth = 128;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Steps over an integer of JSON at the start of text; false where there is none.
bool skip_integer(std::string_view& text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.empty() || !is_digit(text[0])) return false;
  const bool zero = text[0] == '0';
  text.remove_prefix(1);
  if (zero) return text.empty() || !is_digit(text[0]);
  while (!text.empty() && is_digit(text[0])) text.remove_prefix(1);
  return true;
}

bool skip_digits(std::string_view& text) {
  const size_t before = text.size();
  while (!text.empty() && is_digit(text[0])) text.remove_prefix(1);
  return text.size() != before;
}

bool is_integer(std::string_view text) { return skip_integer(text) && text.empty(); }

bool is_number(std::string_view text) {
  if (!skip_integer(text)) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (!skip_digits(text)) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    if (!skip_digits(text)) return false;
  }
  return text.empty();
}

bool names_tokens(std::string_view key) {
  return key == "tokens" || key == "input_ids" || key == "prompt_token_ids";
}

// The first control character inside a string of the line.
const char* control_in_string(std::string_view line) {
  bool inside = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (inside && static_cast<unsigned char>(line[i]) < 0x20) return &line[i];
    if (inside && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      inside = !inside;
    }
  }
  return line.data();
}

// The token that a value starts with, without the blanks behind it.
std::string_view raw_text(sj::value& value) {
  std::string_view text = value.raw_json_token();
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// A field's key; a lone surrogate in it is an error. simdjson 3.2 gave unescaped_key a parameter.
template <class Field>
auto key_of(Field& field) {
  if constexpr (requires { field.unescaped_key(); }) {
    return field.unescaped_key();
  } else {
    return field.unescaped_key(false);
  }
}

}  // namespace

struct TokenLineParser::Impl {
  explicit Impl(const TokenLimits& wanted) : limits(wanted) {}

  TokenLimits limits;
  sj::parser parser;
  sj::document document;
  std::string_view line;
  const LinePlace* place = nullptr;

  template <class... Args>
  [[noreturn]] void fail_at(const char* at, fmt::format_string<Args...> text, Args&&... args) const {
    fail(ErrorCode::corrupt, "{}: line {}, column {}: {}", place->file, place->line_number,
         at - line.data() + 1, fmt::format(text, std::forward<Args>(args)...));
  }

  // What the first pass over the line found, before there is a document.
  [[noreturn]] void fail_text(simdjson::error_code error) const {
    if (error == simdjson::MEMALLOC) fail(ErrorCode::resource, "{}: no memory for a line", place->file);
    if (error == simdjson::UTF8_ERROR) {
      std::string_view rest = line;
      while (const size_t length = utf8_sequence(rest)) rest.remove_prefix(length);
      fail_at(rest.data(), "invalid UTF-8, and JSON lines are UTF-8");
    }
    if (error == simdjson::UNESCAPED_CHARS)
      fail_at(control_in_string(line), "a control character inside a string");
    if (error == simdjson::UNCLOSED_STRING)
      fail_at(line.data() + line.size(), "the line ends inside a string: it is cut");
    fail_at(line.data(), "invalid JSON: {}", simdjson::error_message(error));
  }

  [[noreturn]] void fail_json(simdjson::error_code error) {
    const char* at = line.data() + line.size();
    if (error == simdjson::INCOMPLETE_ARRAY_OR_OBJECT) {
      fail_at(at, "the line does not end with the '}}' of its record: it is cut, or something follows");
    }
    const char* found = nullptr;
    if (document.current_location().get(found) == simdjson::SUCCESS && found >= line.data() && found < at)
      at = found;
    if (error == simdjson::STRING_ERROR) fail_at(at, "invalid JSON: a bad escape in the string before this");
    if (error == simdjson::TAPE_ERROR)
      fail_at(at, "invalid JSON: a comma, colon, quote or bracket must be here");
    fail_at(at, "invalid JSON: {}", simdjson::error_message(error));
  }

  void check(simdjson::error_code error) {
    if (error != simdjson::SUCCESS) fail_json(error);
  }

  void skip_scalar(sj::value value) {
    const std::string_view text = raw_text(value);
    const bool literal = text == "true" || text == "false" || text == "null";
    if (!literal && !is_number(text)) fail_at(text.data(), "'{}' is not a JSON value", printable(text, 40));
  }

  // Checks an ignored value to its end.
  void skip(sj::value value, int depth) {
    const char* at = raw_text(value).data();
    if (depth > kMaxDepth) fail_at(at, "JSON nested more than {} deep", kMaxDepth);
    if (*at == '[') {
      sj::array array;
      check(value.get_array().get(array));
      for (auto item : array) {
        sj::value element;
        check(std::move(item).get(element));
        skip(element, depth + 1);
      }
    } else if (*at == '{') {
      sj::object object;
      check(value.get_object().get(object));
      for (auto item : object) {
        sj::field field;
        check(std::move(item).get(field));
        std::string_view key;
        check(key_of(field).get(key));
        skip(field.value(), depth + 1);
      }
    } else if (*at == '"') {
      std::string_view text;
      check(value.get_string().get(text));
    } else {
      skip_scalar(value);
    }
  }

  int32_t token(sj::value value) const {
    const std::string_view text = raw_text(value);
    if (!is_integer(text)) {
      fail_at(text.data(), "'{}' where a token id must be: an integer of 0 or more", printable(text, 40));
    }
    const int64_t bound =
        limits.n_vocab > 0 ? limits.n_vocab : int64_t{std::numeric_limits<int32_t>::max()} + 1;
    const bool negative = text[0] == '-';
    int64_t number = 0;
    for (const char c : text.substr(negative ? 1 : 0)) {
      if (number < bound) number = number * 10 + (c - '0');
    }
    if (negative || number >= bound) {
      fail_at(text.data(), "token {} is outside the vocabulary: ids are 0 to {}", printable(text, 40),
              bound - 1);
    }
    return static_cast<int32_t>(number);
  }

  void read_tokens(sj::value value, std::string_view key, std::vector<int32_t>& tokens) {
    const char* at = raw_text(value).data();
    if (*at != '[') fail_at(at, "'{}' must be a list of token ids", key);
    sj::array array;
    check(value.get_array().get(array));
    int64_t n = 0;
    for (auto item : array) {
      sj::value element;
      check(std::move(item).get(element));
      const int32_t id = token(element);
      ++n;
      if (limits.max_tokens == 0 || n <= limits.max_tokens) tokens.push_back(id);
    }
    if (n == 0) fail_at(at, "'{}' is empty, and a record has one token at least", key);
    if (limits.max_tokens > 0 && n > limits.max_tokens && !limits.truncate) {
      fail_at(at, "the record has {} tokens, and the model's context {}; --truncate cuts it", n,
              limits.max_tokens);
    }
  }

  void read_id(sj::value value, std::string& id) {
    const std::string_view raw = raw_text(value);
    if (raw[0] == '"') {
      std::string_view text;
      check(value.get_string().get(text));
      id = text;
      if (id.empty()) fail_at(raw.data(), "the id is empty: give a name, or leave it out");
    } else if (is_integer(raw)) {
      id = raw == "-0" ? "0" : raw;
    } else {
      fail_at(raw.data(), "'{}' where the id must be: a string or an integer", printable(raw, 40));
    }
    if (id.size() > kMaxIdBytes) {
      fail_at(raw.data(), "the id has {} bytes, and a dump's records hold {} at most", id.size(),
              kMaxIdBytes);
    }
  }

  void read_field(sj::field field, TokenRecord& record) {
    const char* at = field.key().raw() - 1;  // the opening quote
    std::string_view view;
    check(key_of(field).get(view));
    const std::string key(view.substr(0, 32));  // no key that matters is longer
    if (names_tokens(key)) {
      if (!record.tokens.empty()) fail_at(at, "'{}' gives the record tokens a second time", key);
      read_tokens(field.value(), key, record.tokens);
    } else if (key == "id") {
      if (!record.id.empty()) fail_at(at, "'id' gives the record a second id");
      read_id(field.value(), record.id);
    } else {
      skip(field.value(), 2);
    }
  }

  void read_line(TokenRecord& record) {
    const simdjson::padded_string_view padded(line.data(), line.size(), line.size() + kLinePadding);
    if (const auto error = parser.iterate(padded).get(document)) fail_text(error);
    const char* start = line.data() + line.find_first_not_of(" \t\r");
    if (*start != '{')
      fail_at(start, "a record must be a JSON object: {{\"id\": \"a\", \"tokens\": [1, 2]}}");
    sj::object object;
    check(document.get_object().get(object));
    for (auto item : object) {
      sj::field field;
      check(std::move(item).get(field));
      read_field(field, record);
    }
    const char* rest = nullptr;
    if (document.current_location().get(rest) == simdjson::SUCCESS)
      fail_at(rest, "something follows the record");
    if (record.tokens.empty()) {
      fail_at(start,
              "the record has no 'tokens' (or 'input_ids' or 'prompt_token_ids'): a list of token ids");
    }
  }
};

TokenLineParser::TokenLineParser(const TokenLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
TokenLineParser::~TokenLineParser() = default;

void TokenLineParser::parse(std::string_view line, const LinePlace& place, TokenRecord& record) {
  record.id.clear();
  record.tokens.clear();
  impl_->line = line;
  impl_->place = &place;
  impl_->read_line(record);
}

}  // namespace logitgate
