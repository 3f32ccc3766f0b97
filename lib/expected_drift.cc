// The expected-drift model; see expected_drift.h for the formula and where its constants come from.
// Contract: pure arithmetic on two headers and a row's statistics.
#include "lib/expected_drift.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "lib/error.h"

namespace logitgate {
namespace {

struct Rounding {
  double unit;   // u
  double kappa;  // of the arithmetic
};

constexpr double kRoundingSums = 64;
constexpr double kRoundingOperands = 2;

std::optional<Rounding> rounding_of(const std::string& precision) {
  if (precision == "f64") return Rounding{0x1p-53, kRoundingSums};
  if (precision == "f32" || precision == "f32x3") return Rounding{0x1p-24, kRoundingSums};
  if (precision == "tf32" || precision == "f16") return Rounding{0x1p-11, kRoundingOperands};
  if (precision == "bf16") return Rounding{0x1p-8, kRoundingOperands};
  return std::nullopt;
}

// The name of the precision that a stored type has room for.
std::string stored_precision(StoreType store) {
  switch (store) {
    case StoreType::f64:
      return "f64";
    case StoreType::bf16:
      return "bf16";
    case StoreType::f16:
      return "f16";
    case StoreType::f32:
    case StoreType::topk:
      break;
  }
  return "f32";
}

}  // namespace

ExpectedDrift::ExpectedDrift(const DumpHeader& reference, const DumpHeader& candidate) {
  double sum_sq = 0;
  for (const auto& [side, header] :
       {std::pair("reference", &reference), std::pair("candidate", &candidate)}) {
    const std::string stored = stored_precision(header->store.type);
    std::optional<Rounding> rounding = rounding_of(header->precision);
    if (!rounding) {
      rounding = rounding_of(stored);
      assumption_ += fmt::format("the {} does not say its precision, taken to be {}; ", side, stored);
    }
    sum_sq += rounding->unit * rounding->kappa * rounding->unit * rounding->kappa;
    stored_ += rounding_of(stored)->unit;
  }
  computed_ = std::sqrt(sum_sq);
  if (!reference.weights_digest.empty() && !candidate.weights_digest.empty() &&
      reference.weights_digest != candidate.weights_digest) {
    assumption_ += "the weights differ, which no rounding covers; ";
  }
  if (!assumption_.empty()) assumption_.resize(assumption_.size() - 2);
}

double ExpectedDrift::arithmetic(const RowStats& row) const {
  return computed_ * std::max(1.0, row.half_range);
}

}  // namespace logitgate
