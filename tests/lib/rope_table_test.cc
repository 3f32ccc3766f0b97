// The rotary tables: against long double trigonometry, and the double-double arithmetic under them.
// Contract: every entry is within an ulp of the exact value; the tables of a longer context begin with those of a shorter.
#include "lib/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lib/double_double.h"

namespace logitgate {
namespace {

TEST(DoubleDouble, ExpAndLogInvertEachOther) {
  for (double x : {1.5, 10000.0, 1e6, 5e5, 123456.789, 1e30}) {
    const DoubleDouble back = exp(log(x));
    EXPECT_EQ(back.hi, x);
    EXPECT_LT(std::fabs(back.lo), x * 0x1p-95) << x;
  }
}

TEST(DoubleDouble, SinCosHaveUnitNorm) {
  for (double x = 0; x <= 1.0; x += 0.037) {
    DoubleDouble s, c;
    sin_cos({x, 0}, s, c);
    const DoubleDouble one = s * s + c * c;
    EXPECT_EQ(one.hi, 1.0);
    EXPECT_LT(std::fabs(one.lo), 0x1p-98);
  }
}

void expect_table(const RopeTable& table, double theta, const std::vector<float>& factors) {
  for (int p = 0; p < table.n_positions; p += p < 70 ? 1 : 97) {
    for (int i = 0; i < table.n_rot / 2; ++i) {
      const long double factor = factors.empty() ? 1.0L : factors[i];
      const long double angle =
          p * std::pow(static_cast<long double>(theta), -2.0L * i / table.n_rot) / factor;
      const size_t at = static_cast<size_t>(p) * (table.n_rot / 2) + i;
      // The long double angle itself is off by 2^-64 of its size.
      const double bound = 0x1p-53 + static_cast<double>(angle) * 0x1p-62;
      ASSERT_NEAR(table.cos[at], static_cast<double>(std::cos(angle)), bound) << p << " " << i;
      ASSERT_NEAR(table.sin[at], static_cast<double>(std::sin(angle)), bound) << p << " " << i;
    }
  }
}

TEST(RopeTable, MatchesLongDouble) {
  expect_table(make_rope_table(5000, 128, 1e6, false), 1e6, {});
  expect_table(make_rope_table(300, 6, 10000.0, true), 10000.0, {});
}

TEST(RopeTable, DividesAnglesByFactors) {
  const std::vector<float> factors = {1.0f, 1.5f, 4.0f, 8.0f};
  expect_table(make_rope_table(500, 8, 500000.0, true, factors), 500000.0, factors);
}

TEST(RopeTable, LongerTablesBeginWithShorterOnes) {
  const RopeTable small = make_rope_table(64, 64, 1e6, false), large = make_rope_table(256, 64, 1e6, false);
  EXPECT_TRUE(std::equal(small.cos.begin(), small.cos.end(), large.cos.begin()));
  EXPECT_TRUE(std::equal(small.sin.begin(), small.sin.end(), large.sin.begin()));
}

}  // namespace
}  // namespace logitgate
