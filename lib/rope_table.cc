// Rotary angles by a double-double recurrence over positions: one complex product a position and pair.
// Contract: in rope_table.h; the recurrence's error at position p is about p · 2^-104, far below a double's half ulp.
#include "lib/rope_table.h"

#include "lib/double_double.h"

namespace logitgate {

RopeTable make_rope_table(int32_t n_positions, int32_t n_rot, double theta, bool interleaved,
                          std::span<const float> freq_factors) {
  RopeTable table;
  table.n_rot = n_rot;
  table.n_positions = n_positions;
  table.interleaved = interleaved;
  const int64_t n_pairs = n_rot / 2;
  table.cos.resize(static_cast<size_t>(n_positions) * n_pairs);
  table.sin.resize(table.cos.size());

  const DoubleDouble log_theta = log(theta);
  for (int64_t i = 0; i < n_pairs; ++i) {
    DoubleDouble angle = exp(-(log_theta * DoubleDouble{2.0 * static_cast<double>(i), 0} / n_rot));
    if (!freq_factors.empty()) angle = angle / static_cast<double>(freq_factors[i]);
    DoubleDouble step_sin, step_cos;
    sin_cos(angle, step_sin, step_cos);
    DoubleDouble s{0, 0}, c{1, 0};
    for (int64_t p = 0; p < n_positions; ++p) {
      table.cos[p * n_pairs + i] = c.hi;
      table.sin[p * n_pairs + i] = s.hi;
      const DoubleDouble next_c = c * step_cos - s * step_sin;
      s = s * step_cos + c * step_sin;
      c = next_c;
    }
  }
  return table;
}

}  // namespace logitgate
