// Parses and applies row selections; see rows.h.
// Contract: the arithmetic is in int64_t with bounds clamped to the record, so no text can overflow it.
#include "lib/rows.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

#include "lib/error.h"

namespace logitgate {
namespace {

[[noreturn]] void fail_rows(const std::string& text, const char* why) {
  fail(ErrorCode::usage, "--rows: '{}' {}; expected last, all, or a slice A:B such as :16, -8: or 2:-1", text,
       why);
}

std::optional<int64_t> parse_bound(const std::string& text, std::string_view bound) {
  if (bound.empty()) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(bound.data(), bound.data() + bound.size(), value);
  if (error != std::errc() || end != bound.data() + bound.size())
    fail_rows(text, "is not a selection of rows");
  return value;
}

// True where no record of any length has a selected row.
bool always_empty(const RowSelection& rows) {
  if (!rows.stop) return false;
  const int64_t first = rows.first.value_or(0);
  return *rows.stop == 0 || (((first < 0) == (*rows.stop < 0)) && *rows.stop <= first);
}

}  // namespace

std::pair<uint32_t, uint32_t> RowSelection::range(uint32_t n_tokens) const {
  const int64_t n = n_tokens;
  const auto clamp = [n](int64_t bound) {
    return std::clamp<int64_t>(bound < 0 ? std::max(bound, -n) + n : bound, 0, n);
  };
  const int64_t begin = clamp(first.value_or(0));
  const int64_t end = stop ? clamp(*stop) : n;
  return {static_cast<uint32_t>(begin), static_cast<uint32_t>(std::max(begin, end))};
}

std::vector<uint32_t> RowSelection::select(uint32_t n_tokens) const {
  const auto [begin, end] = range(n_tokens);
  std::vector<uint32_t> positions(end - begin);
  std::iota(positions.begin(), positions.end(), begin);
  return positions;
}

uint32_t RowSelection::count(uint32_t n_tokens) const {
  const auto [begin, end] = range(n_tokens);
  return end - begin;
}

RowSelection parse_rows(const std::string& text) {
  if (text == "last") return RowSelection::last();
  if (text == "all") return RowSelection::all();
  const size_t colon = text.find(':');
  if (colon == std::string::npos) fail_rows(text, "is not a selection of rows");
  const std::string_view view = text;
  RowSelection rows{parse_bound(text, view.substr(0, colon)), parse_bound(text, view.substr(colon + 1))};
  if (always_empty(rows)) fail_rows(text, "selects no row of any record");
  if (rows.first == 0) rows.first.reset();  // one form for one meaning
  return rows;
}

std::string to_string(const RowSelection& rows) {
  if (rows == RowSelection::all()) return "all";
  if (rows == RowSelection::last()) return "last";
  return fmt::format("{}:{}", rows.first ? fmt::to_string(*rows.first) : "",
                     rows.stop ? fmt::to_string(*rows.stop) : "");
}

}  // namespace logitgate
