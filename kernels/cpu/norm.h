// RMS norm over groups of a row.
// Equation: y[g, i] = x[g, i] / sqrt(mean(x[g]²) + eps) · w[i] over groups of n elements; y may be x.
// Layout: x, y [n_groups, n], w [n], all in the run's type. The squares are summed in sixteen fixed lanes.
// Cost: one pass for the sum, one for the product; memory-bound.
#pragma once

#include <cstddef>

#include "kernels/cpu/thread_pool.h"

namespace logitgate {

template <class T>
void rms_norm(ThreadPool& pool, const T* x, const T* w, size_t n_groups, size_t n, double eps, T* y);

}  // namespace logitgate
