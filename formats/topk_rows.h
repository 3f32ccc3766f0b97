// The K largest logits of a row, and its log-sum-exp.
// Contract: NaNs come first, by rising id; then by falling value, ties (and -0 with +0) by rising id. The
// log-sum-exp is taken in double over the whole row: NaN if any logit is NaN, +inf if any is, -inf if all
// are. Its bits do not depend on SIMD or libm.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace logitgate {

// k is at most the row's length.
void select_topk(std::span<const float> row, uint32_t k, uint32_t* ids, float* values);
double log_sum_exp(std::span<const float> row);
double log_sum_exp(std::span<const double> row);

}  // namespace logitgate
