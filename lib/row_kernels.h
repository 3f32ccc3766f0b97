// The vectorised passes over two rows of logits: differences and top two, sums of exponentials, KL divergence.
// Contract: rows hold n >= 1 values of float or double; all arithmetic is in double, sums run in eight fixed lanes, so
// the result depends neither on threads nor on the vector width. A scan's fields mean something only where finite()
// says so: it is asked first, since neither a maximum nor a comparison shows a NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

namespace logitgate {

constexpr uint32_t kNoToken = std::numeric_limits<uint32_t>::max();

// The two largest values of a row and where they are; a tie goes to the lower id. A row of one value has no second.
struct Top2 {
  uint32_t first = kNoToken;
  uint32_t second = kNoToken;
  double first_value = -std::numeric_limits<double>::infinity();
  double second_value = -std::numeric_limits<double>::infinity();

  // first_value - second_value; 0 where both are the same infinity, NaN where the row holds no number.
  double margin() const;
};

struct RowScan {
  Top2 reference;
  Top2 candidate;
  double max_abs = 0;        // max |R_i - C_i|
  uint32_t max_token = 0;    // the first i that reaches it
  double sum_abs = 0;        // sum of |R_i - C_i|
  double sum_sq = 0;         // sum of (R_i - C_i)^2
  double sum_ref_sq = 0;     // sum of R_i^2
  double min_reference = 0;  // min R_i

  // True where every value of both rows is finite: a NaN or an infinity on either side makes the sum of squared
  // differences NaN or infinite. False, too, for finite doubles whose squares overflow: then the careful path looks.
  bool finite() const {
    return sum_sq < std::numeric_limits<double>::infinity() &&
           sum_ref_sq < std::numeric_limits<double>::infinity();
  }
};

// One pass over R - reference_shift and C - candidate_shift (shifts normalise log-probabilities; 0 changes nothing).
template <class R, class C>
RowScan scan_rows(const R* reference, const C* candidate, size_t n, double reference_shift = 0,
                  double candidate_shift = 0);

// log(sum of exp(x_i)) of a row of finite values, stable; `max` is the row's largest value.
template <class T>
double log_sum_exp(const T* row, size_t n, double max);

// KL(softmax(R) || softmax(C)) of rows of finite values, in nats; the maxima are the rows' largest values.
//
// With p the reference's probability and d = log q - log p it is the sum of p g(d), g(d) = e^d - 1 - d: equal to the sum of
// -p d, since probabilities sum to one, but every term is >= 0 and small where d is small, so rounding neither drowns the
// sum nor turns it negative. To need neither log-sum-exp beforehand, d is taken as x - t with x = (C_i - R_i) -
// (max C - max R) and t the difference of the log-sum-exps of both: the sum of p g(x - t) is that of p g(x), less g(t).
template <class R, class C>
double kl_divergence(const R* reference, const C* candidate, size_t n, double reference_max,
                     double candidate_max);

// e^x - 1 - x without cancellation.
double exp_minus_one_minus(double x);

// exp of every value (which must be <= 1; below -708 it gives 0), as the passes above compute it; for tests.
void exp_values(const double* x, double* out, size_t n);

}  // namespace logitgate
