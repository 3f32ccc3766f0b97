// The matrix product of Phase::prefill.
// Equation: y[t, o] = Σ_i w[o, i] · x[t, i]; w [n_out, n_in] in the file's type and bytes, x [n_tokens, n_in],
// y [n_tokens, n_out] row-major. Each element is one chain of FMA over rising i, so its bits depend on its token and row
// alone: not on n_tokens, the threads, the SIMD level or where blocks end.
// Layout: x is packed into panels [n_in, kPanel] of tokens side by side, zeros after the last token; weights are
// dequantised exactly, a block of kBlockRows × kBlockK at a time.
// Cost: 2 · n_tokens · n_out · n_in flop; weights are read once for every kBlockTokens tokens.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/cpu/memory.h"
#include "kernels/cpu/thread_pool.h"
#include "lib/backend.h"

namespace logitgate {

struct GemmScratch {
  Scratch panels;                   // x, packed
  std::vector<Scratch> of_threads;  // a weight block and its results; one a thread
};

// T is float or double.
template <class T>
void gemm(ThreadPool& pool, GemmScratch& scratch, const Weight& w, const T* x, size_t n_tokens, T* y);

}  // namespace logitgate
