// How fast rows are measured: bytes of both rows a second on one core, for gate and for compare.
// Contract: the result of each case is checked against plain double arithmetic before it is timed. `compare_bench [n_vocab]`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <vector>

#include "lib/metrics.h"

namespace {

using namespace logitgate;

// Processor time of this thread: what other processes take of the core does not count.
double seconds_now() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr size_t kRows = 16;  // so that a pass does not find its row in the second-level cache

struct Case {
  const char* what;
  double noise;
  MeasureOptions options;
};

double lse(const float* row, size_t n) {
  const double max = *std::max_element(row, row + n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(row[i]) - max);
  return max + std::log(sum);
}

bool is_right(const RowStats& stats, const float* r, const float* c, size_t n, bool kld) {
  double max_abs = 0, divergence = 0;
  const double r_lse = lse(r, n), c_lse = lse(c, n);
  for (size_t i = 0; i < n; ++i) {
    max_abs = std::max(max_abs, std::abs(static_cast<double>(r[i]) - static_cast<double>(c[i])));
    const double d = (c[i] - c_lse) - (r[i] - r_lse);
    divergence += std::exp(r[i] - r_lse) * exp_minus_one_minus(d);
  }
  return stats.finite && stats.max_abs == max_abs &&
         (!kld || std::abs(stats.kld - divergence) <= 1e-9 * divergence + 1e-18);
}

RowView view(const float* row, size_t n) {
  RowView v;
  v.f32 = row;
  v.n_vocab = static_cast<uint32_t>(n);
  return v;
}

bool run(const Case& test, size_t n) {
  std::mt19937 random(1);
  std::normal_distribution<float> logit(0, 3), noise(0, static_cast<float>(test.noise));
  std::vector<float> r(kRows * n), c(kRows * n);
  for (size_t i = 0; i < r.size(); ++i) {
    r[i] = logit(random);
    c[i] = test.noise > 0 ? r[i] + noise(random) : r[i];
  }
  const auto measure = [&](size_t row) {
    return measure_row(view(&r[row * n], n), view(&c[row * n], n), test.options);
  };
  if (!is_right(measure(0), r.data(), c.data(), n, test.options.kld)) {
    fmt::print("{:<44} WRONG\n", test.what);
    return false;
  }
  double best = 0;
  for (int repeat = 0; repeat < 15; ++repeat) {
    const double start = seconds_now();
    double sum = 0;
    for (size_t row = 0; row < kRows; ++row) sum += measure(row).max_abs;
    const double seconds = seconds_now() - start;
    if (sum >= 0) best = std::max(best, static_cast<double>(2 * sizeof(float) * r.size()) / seconds);
  }
  fmt::print("{:<44} {:6.2f} GB/s a core\n", test.what, best / 1e9);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const long n = argc > 1 ? std::atol(argv[1]) : 151'936;
  if (n < 1) {
    fmt::print(stderr, "compare_bench: '{}' is not a vocabulary; expected a number above 0\n", argv[1]);
    return 2;
  }
  MeasureOptions without;
  without.kld = false;
  const Case cases[] = {
      {"gate, rounding apart", 1e-5, without},  {"compare, rounding apart", 1e-5, {}},
      {"compare, quantisation apart", 0.3, {}}, {"compare, unrelated", 5, {}},
      {"compare, bit-identical", 0, {}},
  };
  bool right = true;
  for (const Case& test : cases) right &= run(test, static_cast<size_t>(n));
  return right ? 0 : 1;
}
