// Rotary angles: the cos and sin tables that every backend shares.
// Contract: pair i of position p turns by p · theta^(-2i / n_rot) / factor_i; computed in double-double from IEEE
// operations alone and rounded once to double, so every machine gets the same bits.
// Source: Su et al., "RoFormer" (arXiv 2104.09864), section 3.2.
#pragma once

#include <cstdint>
#include <span>

#include "lib/backend.h"

namespace logitgate {

// freq_factors: n_rot / 2 divisors of the angles (`rope_freqs.weight`), or empty for none.
// theta > 1 and finite, n_rot even and positive: the caller has checked.
RopeTable make_rope_table(int32_t n_positions, int32_t n_rot, double theta, bool interleaved,
                          std::span<const float> freq_factors = {});

}  // namespace logitgate
