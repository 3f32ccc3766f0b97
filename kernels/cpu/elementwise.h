// How ops without sums across rows are shared out among the threads.
// Contract: f(first, count) is called for runs that cover [0, n) once; small jobs stay on the caller. Since such an op's
// result for one row depends on nothing else, where runs end is no part of the result.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/thread_pool.h"

namespace logitgate {

constexpr size_t kElementsWorthATask = size_t{1} << 14;

template <class F>
void run_in_runs(ThreadPool& pool, size_t n, size_t elements_each, F&& f) {
  if (n == 0) return;
  const size_t run = std::max(size_t{1}, kElementsWorthATask / std::max(size_t{1}, elements_each));
  const size_t n_tasks = (n + run - 1) / run;
  pool.run(n_tasks, [&](size_t task, size_t) { f(task * run, std::min(run, n - task * run)); });
}

}  // namespace logitgate
