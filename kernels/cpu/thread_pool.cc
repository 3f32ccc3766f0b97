// The pool's claim word, its waits and its way with exceptions.
// Contract: see thread_pool.h. Waits spin for some microseconds, then sleep in the kernel.
#include "kernels/cpu/thread_pool.h"

#include <sched.h>

#include <utility>

#include "lib/error.h"

namespace logitgate {
namespace {

constexpr int kSpins = 2000;
constexpr size_t kTasksMax = (size_t{1} << 31) - 1;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns when word no longer holds `seen`.
void wait_for_change(const std::atomic<uint32_t>& word, uint32_t seen) {
  for (int i = 0; i < kSpins; ++i) {
    if (word.load(std::memory_order_acquire) != seen) return;
    pause_briefly();
  }
  word.wait(seen, std::memory_order_acquire);
}

int usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  const unsigned n = std::thread::hardware_concurrency();
  return n == 0 ? 1 : static_cast<int>(n);
}

}  // namespace

ThreadPool::ThreadPool(int n_threads) {
  const int n = n_threads > 0 ? n_threads : usable_processors();
  try {
    for (int i = 1; i < n; ++i) workers_.emplace_back([this, i] { work(static_cast<size_t>(i)); });
  } catch (const std::exception& e) {
    stop();
    fail(ErrorCode::resource, "threads: {} of {} could be started ({}); ask for fewer with --threads",
         workers_.size() + 1, n, e.what());
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() noexcept {
  stopping_.store(true, std::memory_order_release);
  job_.fetch_add(1, std::memory_order_release);
  job_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::execute(Function function, void* context, size_t index, size_t thread) {
  if (!failed_.load(std::memory_order_relaxed)) {
    try {
      function(context, index, thread);
    } catch (...) {
      const std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
      failed_.store(true, std::memory_order_relaxed);
    }
  }
}

// Claims and runs one task of the current job; false where none is left to claim.
bool ThreadPool::run_one(size_t thread) {
  uint64_t word = unclaimed_.load(std::memory_order_acquire);
  for (;;) {
    const auto left = static_cast<uint32_t>(word);
    if (left == 0) return false;
    const uint32_t n = n_tasks_.load(std::memory_order_acquire);
    const Function function = function_.load(std::memory_order_acquire);
    void* context = context_.load(std::memory_order_acquire);
    if (unclaimed_.compare_exchange_weak(word, word - 1, std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
      execute(function, context, n - left, thread);
      if (n_done_.fetch_add(1, std::memory_order_acq_rel) + 1 == n) n_done_.notify_one();
      return true;
    }
  }
}

void ThreadPool::work(size_t thread) {
  uint32_t seen = 0;
  while (!stopping_.load(std::memory_order_acquire)) {
    while (run_one(thread)) {
    }
    wait_for_change(job_, seen);
    seen = job_.load(std::memory_order_acquire);
  }
}

void ThreadPool::run_job(size_t n_tasks, Function function, void* context) {
  if (workers_.empty() || n_tasks <= 1) {
    for (size_t i = 0; i < n_tasks; ++i) function(context, i, 0);
    return;
  }
  if (n_tasks > kTasksMax) fail(ErrorCode::resource, "thread pool: {} tasks in one job", n_tasks);
  // No task of the last job is left, so no claim can succeed until unclaimed_ is set below.
  n_done_.store(0, std::memory_order_release);
  n_tasks_.store(static_cast<uint32_t>(n_tasks), std::memory_order_release);
  function_.store(function, std::memory_order_release);
  context_.store(context, std::memory_order_release);
  const uint64_t job = (unclaimed_.load(std::memory_order_relaxed) >> 32) + 1;
  unclaimed_.store(job << 32 | n_tasks, std::memory_order_release);
  job_.fetch_add(1, std::memory_order_release);
  job_.notify_all();

  while (run_one(0)) {
  }
  for (uint32_t done = n_done_.load(std::memory_order_acquire); done != n_tasks;
       done = n_done_.load(std::memory_order_acquire)) {
    wait_for_change(n_done_, done);
  }
  if (failed_.load(std::memory_order_relaxed)) {
    failed_.store(false, std::memory_order_relaxed);
    const std::lock_guard lock(error_mutex_);
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

}  // namespace logitgate
