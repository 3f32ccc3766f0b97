// Causal attention over the KV cache, for both phases.
// Equation: out[t, h] = Σ_j p_j v_j / Σ_j p_j, p_j = exp(s_j - m), s_j = scale · q[t, h]·k_j over the positions j = 0…position(t) of the
// token's record; head h reads key/value head h / (n_head / n_head_kv).
// Layout: q, out [T, n_head · head_dim]; keys, values [capacity, head_dim] a head (kv_cache.h).
//
// Prefill: query tokens and the query heads of one key/value head lie side by side in a panel; keys pass in blocks of
// kKeyBlock counted from position 0. Scores are FMA chains over head_dim; m is the running maximum after each block and
// sums are rescaled by exp(m_old - m); sums over j rise by position. So every bit is fixed by the token's position
// and record, however its record was cut into batches. Scores of one block exist at a time.
// Cost: 4 · head_dim flop for each pair of query head and key, and one exp.
//
// Decode: scores are dot products in sixteen lanes, m is the maximum over all keys, Σ p_j runs in sixteen lanes, and each
// element of Σ p_j v_j is one chain over rising j: another order of the same sums, fixed by position too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/kv_cache.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/thread_pool.h"
#include "lib/backend.h"

namespace logitgate {

template <class T>
struct AttentionArgs {
  const CpuKvCache<T>* cache = nullptr;
  AttentionShape shape;
  const T* q = nullptr;
  T* out = nullptr;
};

template <class T>
void attention_prefill(ThreadPool& pool, std::vector<Scratch>& scratch, const AttentionArgs<T>& args,
                       const std::vector<BatchPiece>& pieces);

// Every piece has one token.
template <class T>
void attention_decode(ThreadPool& pool, std::vector<Scratch>& scratch, const AttentionArgs<T>& args,
                      const std::vector<BatchPiece>& pieces);

}  // namespace logitgate
