// How far two runs of one model may be expected to drift apart by rounding, from what their dumps say of themselves.
//
//   arithmetic(row) = A · sqrt(a_R² + a_C²),   a = κ · u of a side's precision
//   storage(row)    = M · (s_R + s_C),         s = u of a side's stored type
//   expected(row)   = arithmetic + storage
//   ceiling(row)    = kAutoFactor · arithmetic + storage          (--max-diff auto)
//
// u = 2^-p is the unit roundoff of p significand bits: f64 2^-53; f32 and f32x3 2^-24; tf32 and f16 2^-11; bf16 2^-8.
// A = max(1, half the range of the reference's logits) is the scale of a row that no shift changes; the floor of 1 nat keeps
// rows of nearly equal logits from asking for more than softmax can show. M is the reference's largest magnitude: storing
// rounds the number itself, and by at most u of it, so that part is a bound and takes no factor.
// κ = 64 where sums themselves round (f64, f32, f32x3): the growth over thousands of terms and some dozens of layers.
// κ = 2 for tf32 and bf16, where only the operands of products round, independently, and sums are f32.
// Calibrated on trained 4-layer models with logits in ±19: f32 runs differ from exact arithmetic by up to 2e-4 (expected
// 6e-5 a side, ceiling 1e-3), bf16 activations by 5e-2 (0.1, 2), f16 by 5e-3 (1.4e-2, 0.23).
//
// Contract: a precision that a dump does not name (an import) is taken to be that of its stored type, f32 for top-k, and
// `assumption` says so. Other weights or 8-bit activations are no rounding of these kinds; the model does not cover them.
#pragma once

#include <string>

#include "formats/dump_format.h"
#include "lib/metrics.h"

namespace logitgate {

class ExpectedDrift {
 public:
  static constexpr double kAutoFactor = 16;

  ExpectedDrift(const DumpHeader& reference, const DumpHeader& candidate);

  double expected(const RowStats& row) const { return arithmetic(row) + storage(row); }
  double ceiling(const RowStats& row) const { return kAutoFactor * arithmetic(row) + storage(row); }
  // What had to be assumed, or ought to be known: "" or a sentence.
  const std::string& assumption() const { return assumption_; }

 private:
  double arithmetic(const RowStats& row) const;
  double storage(const RowStats& row) const { return stored_ * row.max_magnitude; }

  double computed_ = 0;  // sqrt(a_R² + a_C²)
  double stored_ = 0;    // s_R + s_C
  std::string assumption_;
};

}  // namespace logitgate
