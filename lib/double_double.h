// Numbers held as an unevaluated sum of two doubles (about 32 digits), for tables whose bits no libm may decide.
// Contract: uses IEEE addition, multiplication and fused multiply-add alone (compiled without contraction), so every
// machine gets the same bits. Source: T. J. Dekker, "A floating-point technique for extending the available precision",
// Numer. Math. 18 (1971).
#pragma once

#include <cmath>

namespace logitgate {

struct DoubleDouble {
  double hi = 0;
  double lo = 0;
};

inline DoubleDouble two_sum(double a, double b) {
  const double s = a + b;
  const double t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}
inline DoubleDouble quick_two_sum(double a, double b) {
  const double s = a + b;
  return {s, b - (s - a)};
}
inline DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
  DoubleDouble s = two_sum(a.hi, b.hi);
  const DoubleDouble t = two_sum(a.lo, b.lo);
  s = quick_two_sum(s.hi, s.lo + t.hi);
  return quick_two_sum(s.hi, s.lo + t.lo);
}
inline DoubleDouble operator-(DoubleDouble a) { return {-a.hi, -a.lo}; }
inline DoubleDouble operator-(DoubleDouble a, DoubleDouble b) { return a + -b; }
inline DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
  const double p = a.hi * b.hi;
  const double e = std::fma(a.hi, b.hi, -p) + (a.hi * b.lo + a.lo * b.hi);
  return quick_two_sum(p, e);
}
inline DoubleDouble operator/(DoubleDouble a, double b) {
  const double q = a.hi / b;
  const DoubleDouble r = a - DoubleDouble{q, 0} * DoubleDouble{b, 0};
  const double q2 = r.hi / b;
  const DoubleDouble r2 = r - DoubleDouble{q2, 0} * DoubleDouble{b, 0};
  return quick_two_sum(q, q2) + DoubleDouble{r2.hi / b, 0};
}

// 1 / x by two Newton steps from the double quotient.
inline DoubleDouble reciprocal(DoubleDouble x) {
  DoubleDouble r{1.0 / x.hi, 0};
  for (int step = 0; step < 2; ++step) r = r + r * (DoubleDouble{1, 0} - x * r);
  return r;
}

// e^x for |x| < 700: x is halved until |x| < 2^-9, then a Taylor series of e^x - 1, then squared back.
inline DoubleDouble exp(DoubleDouble x) {
  if (x.hi < 0) return reciprocal(exp(-x));  // near e^x = 0 the sum 1 + (e^x - 1) would cancel
  int halvings = 0;
  while (std::fabs(x.hi) > 0x1p-9) {
    x = {x.hi * 0.5, x.lo * 0.5};
    ++halvings;
  }
  DoubleDouble term = x, sum = x;
  for (int n = 2; n <= 12; ++n) {
    term = term * x / n;
    sum = sum + term;
  }
  // (1 + s)² - 1 = 2s + s² keeps the small part exact while it is squared back.
  for (; halvings > 0; --halvings) sum = DoubleDouble{2 * sum.hi, 2 * sum.lo} + sum * sum;
  return DoubleDouble{1, 0} + sum;
}

// ln x for a positive finite x: the double logarithm refined by two Newton steps, which forget what libm gave.
inline DoubleDouble log(double x) {
  DoubleDouble y{std::log(x), 0};
  for (int step = 0; step < 2; ++step) y = y + (DoubleDouble{x, 0} * exp(-y) - DoubleDouble{1, 0});
  return y;
}

// sin and cos of |x| <= 1 by Taylor series.
inline void sin_cos(DoubleDouble x, DoubleDouble& sin, DoubleDouble& cos) {
  const DoubleDouble square = x * x;
  DoubleDouble term{1, 0};
  cos = {1, 0};
  sin = {0, 0};
  DoubleDouble odd = x;
  for (int n = 0; n <= 28; n += 2) {
    sin = sin + odd;
    odd = -(odd * square / (n + 2) / (n + 3));
    term = -(term * square / (n + 1) / (n + 2));
    cos = cos + term;
  }
}

}  // namespace logitgate
