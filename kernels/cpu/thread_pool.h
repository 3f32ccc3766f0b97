// A small pool of threads that runs numbered tasks of one job at a time.
// Contract: run() returns when every task of its job has run, exactly once each, on the caller or on a worker; which
// thread takes which task is open, so a task's result must depend on its number alone. The first exception of a task is
// rethrown by run() and the job's remaining tasks are skipped. A job needs no worker to finish: with the machine overloaded, the
// caller does what sleeping workers do not. One caller at a time; run() within a task is not allowed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace logitgate {

class ThreadPool {
 public:
  // n_threads counts the caller; 0: one for every processor this process may use.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int n_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // task(index, thread) for every index in [0, n_tasks); thread is in [0, n_threads()), 0 for the caller.
  template <class Task>
  void run(size_t n_tasks, Task&& task) {
    using Plain = std::remove_reference_t<Task>;
    run_job(
        n_tasks, [](void* t, size_t i, size_t thread) { (*static_cast<Plain*>(t))(i, thread); },
        const_cast<void*>(static_cast<const void*>(&task)));
  }

 private:
  using Function = void (*)(void*, size_t, size_t);
  void run_job(size_t n_tasks, Function function, void* context);
  void work(size_t thread);
  bool run_one(size_t thread);
  void execute(Function function, void* context, size_t index, size_t thread);
  void stop() noexcept;

  // The job's number (upper half) and how many of its tasks are unclaimed (lower half), in one word: a claim that
  // succeeds proves that the fields below, read before it, belong to the job it claims from, since a job's fields
  // are only overwritten once none of its tasks is left.
  alignas(64) std::atomic<uint64_t> unclaimed_{0};
  std::atomic<uint32_t> n_tasks_{0};
  std::atomic<Function> function_{nullptr};
  std::atomic<void*> context_{nullptr};
  alignas(64) std::atomic<uint32_t> n_done_{0};
  alignas(64) std::atomic<uint32_t> job_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::vector<std::thread> workers_;
};

}  // namespace logitgate
