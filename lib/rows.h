// Which positions of a record have their logits kept or compared: `last`, `all`, or a Python slice `A:B`.
// Contract: a selection is independent of the record; select() applies it to one. Equal selections have equal
// text. Errors: Error{usage} from parse_rows for anything else, and for a slice that selects nothing in any
// record.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace logitgate {

struct RowSelection {
  // Half-open, as in Python: a negative bound counts from the record's end, an absent one is the end itself.
  std::optional<int64_t> first;
  std::optional<int64_t> stop;

  static RowSelection all() { return {}; }
  static RowSelection last() { return {-1, std::nullopt}; }

  // The selected positions of a record of n_tokens as [begin, end).
  std::pair<uint32_t, uint32_t> range(uint32_t n_tokens) const;
  // The selected positions of a record of n_tokens, ascending; may be empty.
  std::vector<uint32_t> select(uint32_t n_tokens) const;
  // How many select() would give.
  uint32_t count(uint32_t n_tokens) const;

  friend bool operator==(const RowSelection&, const RowSelection&) = default;
};

RowSelection parse_rows(const std::string& text);
// The shortest form: "last", "all", ":8", "-8:", "2:-1".
std::string to_string(const RowSelection& rows);

}  // namespace logitgate
