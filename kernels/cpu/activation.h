// Ops element by element: activation functions and sums.
// Equation: swiglu: y = gate / (1 + e^(-gate)) · up; add: x += y. Layout: [n] each; y may be gate.
// Cost: one pass over the operands, memory-bound.
#pragma once

#include <cstddef>

#include "kernels/cpu/thread_pool.h"

namespace logitgate {

template <class T>
void swiglu(ThreadPool& pool, const T* gate, const T* up, size_t n, T* y);

template <class T>
void add_to(ThreadPool& pool, const T* y, size_t n, T* x);

}  // namespace logitgate
