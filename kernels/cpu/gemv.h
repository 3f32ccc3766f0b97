// The matrix product of Phase::decode.
// Equation: y[t, o] = Σ_i w[o, i] · x[t, i]; w [n_out, n_in] in the file's type and bytes, x [n_tokens, n_in],
// y [n_tokens, n_out] row-major. Each product is summed in sixteen fixed lanes (lanes-inl.h), so its bits depend on its
// row and token alone. Cost: every weight byte is read from memory once, whatever n_tokens is.
#pragma once

#include <cstddef>

#include "kernels/cpu/memory.h"
#include "kernels/cpu/thread_pool.h"
#include "lib/backend.h"

namespace logitgate {

// scratch: one a thread, for types without a vector reader. T is float or double.
template <class T>
void gemv(ThreadPool& pool, std::vector<Scratch>& scratch, const Weight& w, const T* x, size_t n_tokens,
          T* y);

}  // namespace logitgate
