// Row selections: what `last`, `all` and Python slices select, what is refused, and the shortest form.
// Contract: the expected positions are those of Python's own slicing, written out by an independent model
// below.
#include "lib/rows.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lib/error.h"

namespace logitgate {
namespace {

using Positions = std::vector<uint32_t>;

TEST(RowSelection, SelectsLastAndAll) {
  EXPECT_EQ(parse_rows("last").select(5), Positions({4}));
  EXPECT_EQ(parse_rows("all").select(3), Positions({0, 1, 2}));
  EXPECT_EQ(parse_rows("last").select(1), Positions({0}));
}

// range(n)[a:b] by the definition in Python's reference: i selected iff a <= i < b after adding n to negative
// bounds.
Positions python_slice(int64_t n, const std::string& a, const std::string& b) {
  int64_t first = a.empty() ? 0 : std::stoll(a);
  int64_t stop = b.empty() ? n : std::stoll(b);
  if (first < 0) first += n;
  if (stop < 0) stop += n;
  Positions positions;
  for (int64_t i = 0; i < n; ++i) {
    if (first <= i && i < stop) positions.push_back(static_cast<uint32_t>(i));
  }
  return positions;
}

TEST(RowSelection, SlicesAsPythonDoes) {
  std::vector<std::string> bounds = {""};
  for (int i = -7; i <= 7; ++i) bounds.push_back(std::to_string(i));
  int accepted = 0;
  for (const std::string& a : bounds) {
    for (const std::string& b : bounds) {
      bool ever = false;
      for (int64_t n = 1; n <= 20; ++n) ever = ever || !python_slice(n, a, b).empty();
      if (!ever) {
        EXPECT_THROW(parse_rows(a + ":" + b), Error) << a << ":" << b;
        continue;
      }
      ++accepted;
      const RowSelection rows = parse_rows(a + ":" + b);
      for (uint32_t n = 1; n <= 20; ++n) {
        EXPECT_EQ(rows.select(n), python_slice(n, a, b)) << a << ":" << b << " of " << n;
        EXPECT_EQ(rows.count(n), rows.select(n).size());
      }
      EXPECT_EQ(parse_rows(to_string(rows)), rows);
    }
  }
  EXPECT_GT(accepted, 100);
}

TEST(RowSelection, OneFormForOneMeaning) {
  EXPECT_EQ(to_string(parse_rows("-1:")), "last");
  EXPECT_EQ(to_string(parse_rows(":")), "all");
  EXPECT_EQ(to_string(parse_rows("0:")), "all");
  EXPECT_EQ(to_string(parse_rows("0:8")), ":8");
  EXPECT_EQ(to_string(parse_rows("-0:8")), ":8");
  EXPECT_EQ(to_string(parse_rows("2:-1")), "2:-1");
}

TEST(RowSelection, ClampsExtremeBounds) {
  const std::string most = "9223372036854775807";
  EXPECT_EQ(parse_rows("-" + most + ":" + most).select(2), Positions({0, 1}));
  EXPECT_EQ(parse_rows("-9223372036854775808:").select(2), Positions({0, 1}));
  EXPECT_EQ(parse_rows(most + ":").count(4294967295u), 0u);
  EXPECT_EQ(parse_rows("all").count(4294967295u), 4294967295u);
}

TEST(RowSelection, RefusesJunk) {
  for (const char* text : {"", "5", "first", "1:2:3", "a:b", "1: 2", " 1:2", "+1:2", "1.0:2", "0x1:",
                           "9223372036854775808:", "LAST", "all ", "--1:", "5:5", ":0", "3:1", "-1:-3"}) {
    EXPECT_THROW(parse_rows(text), Error) << "'" << text << "'";
  }
}

}  // namespace
}  // namespace logitgate
