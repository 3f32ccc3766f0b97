// The measures of a pair of rows against plain scalar references, and their totals.
// Contract: maxima and the top two are exact; sums agree within n times the rounding of a double.
#include "lib/metrics.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <bit>
#include <cmath>
#include <random>

#include "lib/error.h"
#include "lib/row_kernels.h"

namespace logitgate {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();

template <class T>
std::vector<T> random_row(size_t n, uint32_t seed, double scale = 8) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, scale);
  std::vector<T> row(n);
  for (T& x : row) x = static_cast<T>(normal(random));
  return row;
}

RowView view(const std::vector<float>& row) {
  RowView v;
  v.f32 = row.data();
  v.n_vocab = static_cast<uint32_t>(row.size());
  return v;
}
RowView view(const std::vector<double>& row) {
  RowView v;
  v.f64 = row.data();
  v.n_vocab = static_cast<uint32_t>(row.size());
  return v;
}

// The two largest by sorting: falling value, then rising id.
template <class T>
std::vector<uint32_t> order_of(const std::vector<T>& row) {
  std::vector<uint32_t> ids(row.size());
  for (uint32_t i = 0; i < ids.size(); ++i) ids[i] = i;
  std::stable_sort(ids.begin(), ids.end(), [&row](uint32_t a, uint32_t b) { return row[a] > row[b]; });
  return ids;
}

template <class R, class C>
void check_scan(const std::vector<R>& r, const std::vector<C>& c) {
  const size_t n = r.size();
  const RowScan scan = scan_rows(r.data(), c.data(), n);
  double max_abs = -1;
  uint32_t max_token = 0;
  long double sum_abs = 0, sum_sq = 0, ref_sq = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const double diff = static_cast<double>(r[i]) - static_cast<double>(c[i]);
    if (std::abs(diff) > max_abs) {
      max_abs = std::abs(diff);
      max_token = i;
    }
    sum_abs += std::abs(diff);
    sum_sq += static_cast<long double>(diff) * diff;
    ref_sq += static_cast<long double>(r[i]) * r[i];
  }
  const double tolerance = static_cast<double>(n + 2) * kEps;
  EXPECT_TRUE(scan.finite());
  EXPECT_EQ(scan.max_abs, max_abs);
  EXPECT_EQ(scan.max_token, max_token);
  EXPECT_EQ(scan.min_reference, static_cast<double>(*std::min_element(r.begin(), r.end())));
  EXPECT_NEAR(scan.sum_abs, static_cast<double>(sum_abs), tolerance * static_cast<double>(sum_abs));
  EXPECT_NEAR(scan.sum_sq, static_cast<double>(sum_sq), tolerance * static_cast<double>(sum_sq));
  EXPECT_NEAR(scan.sum_ref_sq, static_cast<double>(ref_sq), tolerance * static_cast<double>(ref_sq));
  const std::vector<uint32_t> r_order = order_of(r), c_order = order_of(c);
  EXPECT_EQ(scan.reference.first, r_order[0]);
  EXPECT_EQ(scan.reference.first_value, static_cast<double>(r[r_order[0]]));
  EXPECT_EQ(scan.candidate.first, c_order[0]);
  if (n == 1) {
    EXPECT_EQ(scan.reference.second, kNoToken);
    return;
  }
  EXPECT_EQ(scan.reference.second, r_order[1]);
  EXPECT_EQ(scan.reference.second_value, static_cast<double>(r[r_order[1]]));
  EXPECT_EQ(scan.candidate.second, c_order[1]);
  EXPECT_EQ(scan.candidate.second_value, static_cast<double>(c[c_order[1]]));
}

std::vector<size_t> sizes() {
  std::vector<size_t> n;
  for (size_t i = 1; i <= 40; ++i) n.push_back(i);
  for (const size_t i : {272u, 2047u, 2048u, 2049u, 2056u, 2063u, 4097u, 6150u}) n.push_back(i);
  return n;
}

// Runs f at every vector width that this machine has.
template <class F>
void at_every_width(const F& f) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    f(target);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(Scan, AgreesWithTheScalarReference) {
  at_every_width([](int64_t target) {
    SCOPED_TRACE(hwy::TargetName(target));
    for (const size_t n : sizes()) {
      SCOPED_TRACE(n);
      const auto seed = static_cast<uint32_t>(n);
      check_scan(random_row<float>(n, seed), random_row<float>(n, seed + 1));
      check_scan(random_row<float>(n, seed), random_row<double>(n, seed + 1));
      check_scan(random_row<double>(n, seed), random_row<float>(n, seed + 1));
      check_scan(random_row<double>(n, seed), random_row<double>(n, seed + 1));
    }
  });
}

TEST(Scan, TiesGoToTheLowerId) {
  for (const size_t n : sizes()) {
    std::mt19937 random(static_cast<uint32_t>(n));
    for (int repeat = 0; repeat < 5; ++repeat) {
      std::vector<float> r(n), c(n);
      for (float& x : r) x = static_cast<float>(random() % 3);
      for (float& x : c) x = static_cast<float>(random() % 2) - 7;
      check_scan(r, c);
    }
    check_scan(std::vector<float>(n, 2.5f), std::vector<double>(n, -3));
  }
}

TEST(Scan, WidthsGiveTheSameBits) {
  const auto r = random_row<float>(4099, 5);
  const auto c = random_row<float>(4099, 6);
  std::vector<uint64_t> bits;
  at_every_width([&](int64_t target) {
    if (target != HWY_AVX2 && target != HWY_AVX3 && target != HWY_AVX3_DL) return;  // those with FMA
    const RowScan scan = scan_rows(r.data(), c.data(), r.size());
    const double lse_r = log_sum_exp(r.data(), r.size(), scan.reference.first_value);
    const double kld =
        kl_divergence(r.data(), c.data(), r.size(), scan.reference.first_value, scan.candidate.first_value);
    const std::vector<uint64_t> now = {std::bit_cast<uint64_t>(scan.sum_abs),
                                       std::bit_cast<uint64_t>(scan.sum_sq), std::bit_cast<uint64_t>(lse_r),
                                       std::bit_cast<uint64_t>(kld)};
    if (!bits.empty()) {
      EXPECT_EQ(now, bits);
    }
    bits = now;
  });
}

TEST(Exp, Within2Ulp) {
  std::vector<double> x, y;
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(-708, 1);
  for (int i = 0; i < 50'000; ++i) x.push_back(i % 2 == 0 ? uniform(random) : uniform(random) / 700);
  for (const double edge : {0.0, -0.0, 1.0, -708.0, -1e-300}) x.push_back(edge);
  y.resize(x.size());
  at_every_width([&](int64_t) {
    exp_values(x.data(), y.data(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const long double exact = std::exp(static_cast<long double>(x[i]));
      EXPECT_LE(std::abs(static_cast<double>(y[i] - exact)), 2 * kEps * static_cast<double>(exact)) << x[i];
    }
  });
  const double deep[] = {-708.1, -1e4, -1e300, -std::numeric_limits<double>::infinity()};
  double out[4];
  exp_values(deep, out, 4);
  for (const double zero : out) EXPECT_EQ(zero, 0);
}

template <class T>
long double exact_kld(const std::vector<T>& r, const std::vector<T>& c) {
  const auto lse = [](const std::vector<T>& row) {
    long double sum = 0;
    const long double max = *std::max_element(row.begin(), row.end());
    for (const T x : row) sum += std::exp(static_cast<long double>(x) - max);
    return max + std::log(sum);
  };
  const long double delta = lse(c) - lse(r), r_lse = lse(r);
  long double sum = 0;
  for (size_t i = 0; i < r.size(); ++i) {
    const long double d = (static_cast<long double>(c[i]) - r[i]) - delta;
    // The same identity, with expm1 of 64-bit mantissas; its Taylor series where that cancels.
    const long double g =
        std::abs(d) < 1e-3L ? d * d * (0.5L + d * (1 / 6.0L + d * (1 / 24.0L + d / 120))) : std::expm1(d) - d;
    sum += std::exp(r[i] - r_lse) * g;
  }
  return sum;
}

TEST(Kld, AgreesWithLongDouble) {
  for (const size_t n : {2u, 9u, 272u, 3001u}) {
    for (const double noise : {1e-9, 1e-6, 1e-3, 0.05, 0.5, 5.0, 30.0}) {
      const auto r = random_row<double>(n, 7);
      auto c = random_row<double>(n, 8, noise);
      for (size_t i = 0; i < n; ++i) c[i] += r[i];
      const double kld = measure_row(view(r), view(c), {}).kld;
      const double exact = static_cast<double>(exact_kld(r, c));
      EXPECT_GE(kld, 0);
      // The log-sum-exps are off by a few roundings of a logit, e; the divergence then by e² and by e times itself.
      const double e = 64 * kEps * 30;
      EXPECT_NEAR(kld, exact, 1e-11 * exact + e * e) << n << " " << noise;
    }
  }
}

TEST(Kld, ExtremeRows) {
  const std::vector<float> r = {0, -2000, 5}, far = {0, 2000, 5}, shifted = {1e4f, 1e4f - 2000, 1e4f + 5};
  EXPECT_EQ(measure_row(view(r), view(r), {}).kld, 0);
  EXPECT_LE(measure_row(view(r), view(shifted), {}).kld, 1e-20);
  // The reference says tokens 0 and 2 at odds of 1 to e^5, the candidate token 1: log q is -2000 and -1995 there.
  const double p0 = 1 / (1 + std::exp(5.0)), p2 = 1 - p0;
  EXPECT_NEAR(measure_row(view(r), view(far), {}).kld,
              p0 * (std::log(p0) + 2000) + p2 * (std::log(p2) + 1995), 1e-9);
  EXPECT_NEAR(measure_row(view(far), view(r), {}).kld, 2005 + std::log1p(std::exp(-5.0)), 1e-9);
  const std::vector<float> tiny(5, -3e38f);
  EXPECT_EQ(measure_row(view(tiny), view(std::vector<float>(5, -3e38f)), {}).kld, 0);
  EXPECT_NEAR(log_sum_exp(tiny.data(), 5, -3e38f) / -3e38, 1, 1e-7);
}

TEST(Kld, ExpMinusOneMinus) {
  EXPECT_EQ(exp_minus_one_minus(0), 0);
  for (double x = 1e-12; x < 0.5; x *= 1.7) {
    for (const double y : {x, -x}) {
      const long double z = y;
      const long double exact = z * z / 2 + z * z * z / 6 + z * z * z * z / 24 + z * z * z * z * z / 120 +
                                std::pow(z, 6) / 720 + std::pow(z, 7) / 5040 + std::pow(z, 8) / 40320 +
                                std::pow(z, 9) / 362880 + std::pow(z, 10) / 3628800 +
                                std::pow(z, 11) / 39916800;
      EXPECT_NEAR(exp_minus_one_minus(y), static_cast<double>(exact), 2e-13 * static_cast<double>(exact))
          << y;
    }
  }
}

TEST(Measure, BitIdentity) {
  const std::vector<float> a = {1, 0.0f, 3};
  const std::vector<float> negative_zero = {1, -0.0f, 3};
  const float quiet = std::bit_cast<float>(0x7fc00000u), payload = std::bit_cast<float>(0x7fc00001u);
  const std::vector<float> nan1 = {1, quiet, 3}, nan2 = {1, payload, 3};
  const std::vector<double> wide = {1, 0.0, 3};
  EXPECT_TRUE(measure_row(view(a), view(a), {}).bit_identical);
  EXPECT_FALSE(measure_row(view(a), view(negative_zero), {}).bit_identical);
  EXPECT_EQ(measure_row(view(a), view(negative_zero), {}).max_abs, 0);
  EXPECT_TRUE(measure_row(view(nan1), view(nan1), {}).bit_identical);
  EXPECT_FALSE(measure_row(view(nan1), view(nan1), {}).finite);
  EXPECT_FALSE(measure_row(view(nan1), view(nan2), {}).bit_identical);
  EXPECT_TRUE(measure_row(view(a), view(wide), {}).bit_identical);
  EXPECT_TRUE(measure_row(view(wide), view(a), {}).bit_identical);
  EXPECT_FALSE(measure_row(view(negative_zero), view(wide), {}).bit_identical);
}

TEST(Measure, NonFiniteRowsKeepNothingThatLooksAlike) {
  const std::vector<float> a = {1, 5, 3};
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (size_t at = 0; at < 3; ++at) {
      std::vector<float> b = a;
      b[at] = bad;
      for (const RowStats& s : {measure_row(view(a), view(b), {}), measure_row(view(b), view(a), {})}) {
        EXPECT_FALSE(s.finite);
        EXPECT_FALSE(s.same_infinities);
        EXPECT_FALSE(s.bit_identical);
        EXPECT_FALSE(s.max_abs <= 1e300);
        EXPECT_TRUE(std::isnan(s.kld));
      }
      const RowStats same = measure_row(view(b), view(b), {});
      EXPECT_FALSE(same.finite);
      EXPECT_EQ(same.same_infinities, !std::isnan(bad));
    }
  }
}

TEST(Measure, FiniteDoublesWhoseSquaresOverflow) {
  const std::vector<double> a = {1e300, -1e300, 0}, b = {1e300, 1e300, 0};
  const RowStats s = measure_row(view(a), view(b), {});
  EXPECT_TRUE(s.finite);
  EXPECT_EQ(s.max_abs, 2e300);
  EXPECT_EQ(s.max_token, 1u);
  EXPECT_EQ(s.reference.first, 0u);
}

TEST(Measure, LogProbabilitiesAreNormalised) {
  const auto r = random_row<float>(501, 3);
  std::vector<float> c = r;
  for (float& x : c) x += 3;
  MeasureOptions options;
  options.log_probs = true;
  const RowStats s = measure_row(view(r), view(c), options);
  EXPECT_LE(s.max_abs, 4e-6);  // of adding 3 in float
  EXPECT_EQ(s.reference.first, measure_row(view(r), view(c), {}).reference.first);
  EXPECT_LE(s.reference.first_value, 0);
}

struct Topk {
  std::vector<uint32_t> ids;
  std::vector<float> values;
  double lse;
  uint32_t n_vocab;
  RowView view() const {
    RowView v;
    v.ids = ids.data();
    v.values = values.data();
    v.k = static_cast<uint32_t>(ids.size());
    v.log_sum_exp = lse;
    v.n_vocab = n_vocab;
    return v;
  }
};

Topk topk_of(const std::vector<float>& row, size_t k) {
  Topk top;
  top.n_vocab = static_cast<uint32_t>(row.size());
  const std::vector<uint32_t> ids = order_of(row);
  for (size_t i = 0; i < k; ++i) {
    top.ids.push_back(ids[i]);
    top.values.push_back(row[ids[i]]);
  }
  top.lse = log_sum_exp(row.data(), row.size(), row[ids[0]]);
  return top;
}

TEST(Topk, AllKeptIsTheFullRow) {
  const auto r = random_row<float>(300, 1);
  auto c = random_row<float>(300, 2, 0.1);
  for (size_t i = 0; i < c.size(); ++i) c[i] += r[i];
  const RowStats full = measure_row(view(r), view(c), {});
  const Topk a = topk_of(r, 300), b = topk_of(c, 300);
  for (const RowStats& s : {measure_row(a.view(), b.view(), {}), measure_row(view(r), b.view(), {}),
                            measure_row(a.view(), view(c), {})}) {
    EXPECT_EQ(s.max_abs, full.max_abs);
    EXPECT_EQ(s.max_token, full.max_token);
    EXPECT_EQ(s.reference.first, full.reference.first);
    EXPECT_EQ(s.reference.margin(), full.reference.margin());
    EXPECT_NEAR(s.kld, full.kld, 1e-12);
    EXPECT_NEAR(s.coverage, 1, 1e-12);
    EXPECT_EQ(s.n_compared, 300u);
    EXPECT_TRUE(s.decided);
  }
}

TEST(Topk, TheDivergenceIsALowerBound) {
  const auto r = random_row<float>(1000, 1, 2);
  auto c = random_row<float>(1000, 2, 0.5);
  for (size_t i = 0; i < c.size(); ++i) c[i] += r[i];
  const double full = measure_row(view(r), view(c), {}).kld;
  double before = 0;
  for (const size_t k : {2u, 10u, 100u, 500u, 1000u}) {
    const Topk a = topk_of(r, k), b = topk_of(c, k);
    const RowStats s = measure_row(a.view(), b.view(), {});
    EXPECT_GE(s.kld, 0);
    EXPECT_LE(s.kld, full * (1 + 1e-9));
    if (k > 2) {
      EXPECT_GE(s.kld, before);
    }
    before = s.kld;
    EXPECT_EQ(s.bit_identical, false);
    EXPECT_TRUE(measure_row(a.view(), a.view(), {}).bit_identical);
    EXPECT_EQ(measure_row(a.view(), a.view(), {}).kld, 0);
  }
}

TEST(Quantiles, ExactThenHistogram) {
  std::vector<double> values;
  std::mt19937 random(3);
  std::lognormal_distribution<double> lognormal(-10, 3);
  for (int i = 0; i < 5000; ++i) values.push_back(i % 100 == 0 ? 0 : lognormal(random));
  Quantiles exact(5000), histogram(100);
  for (const double x : values) {
    exact.add(x);
    histogram.add(x);
  }
  std::sort(values.begin(), values.end());
  EXPECT_EQ(exact.relative_error(), 0);
  EXPECT_GT(histogram.relative_error(), 0);
  for (const double q : {0.001, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const double truth = values[static_cast<size_t>(std::ceil(q * 5000)) - 1];
    EXPECT_EQ(exact.quantile(q), truth);
    EXPECT_NEAR(histogram.quantile(q), truth, histogram.relative_error() * truth);
  }
  EXPECT_TRUE(std::isnan(Quantiles(1).quantile(0.5)));
}

TEST(Totals, NonFiniteRowsAreCountedAndLeftOut) {
  Totals totals;
  const std::vector<float> a = {1, 5, 3}, b = {1, 5, 2.5f}, bad = {1, std::nanf(""), 3};
  totals.add({"x", 0}, measure_row(view(a), view(b), {}));
  totals.add({"x", 1}, measure_row(view(a), view(bad), {}));
  totals.add({"x", 2}, measure_row(view(bad), view(bad), {}));
  EXPECT_EQ(totals.rows, 3u);
  EXPECT_EQ(totals.non_finite_rows, 2u);
  EXPECT_EQ(totals.first_non_finite.position, 1u);
  EXPECT_EQ(totals.bit_identical_rows, 1u);
  EXPECT_EQ(totals.n_logits, 3u);
  EXPECT_EQ(totals.max_abs, 0.5);
  for (const SummaryMetric& metric : summary_metrics()) {
    if (metric.key == "mean_abs_diff") {
      EXPECT_NEAR(metric.value(totals), 0.5 / 3, 1e-16);
    }
    if (metric.key == "nmse") {
      EXPECT_NEAR(metric.value(totals), 0.25 / 35, 1e-16);
    }
    if (metric.key == "top1_agreement") {
      EXPECT_EQ(metric.value(totals), 1);
    }
  }
}

TEST(Totals, WithoutAFiniteRowNothingIsClaimed) {
  Totals totals;
  const std::vector<float> bad = {std::nanf(""), 3};
  totals.add({"x", 0}, measure_row(view(bad), view(bad), {}));
  for (const SummaryMetric& metric : summary_metrics()) {
    if (!metric.count && metric.key != "kld.quantile_relative_error") {
      EXPECT_TRUE(std::isnan(metric.value(totals))) << metric.key;
    }
  }
}

TEST(NumberText, ReadsBackAsTheNumber) {
  for (const double x : {0.1, 1e-300, 1.0 / 3, -5.0, 1e22}) EXPECT_EQ(std::stod(number_text(x)), x);
  EXPECT_EQ(number_text(std::nan("")), "NaN");
  EXPECT_EQ(number_text(HUGE_VAL), "Infinity");
  EXPECT_EQ(number_text(-HUGE_VAL), "-Infinity");
}

}  // namespace
}  // namespace logitgate
