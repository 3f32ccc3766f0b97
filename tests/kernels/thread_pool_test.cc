// The thread pool: every task once, exceptions out, and no waiting for threads that are not needed.
#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <stdexcept>
#include <string>

namespace logitgate {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int n_threads : {1, 2, 3, 16}) {
    ThreadPool pool(n_threads);
    ASSERT_EQ(pool.n_threads(), n_threads);
    for (const size_t n : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(n);
      std::atomic<bool> thread_in_range = true;
      pool.run(n, [&](size_t task, size_t thread) {
        runs[task].fetch_add(1);
        if (thread >= static_cast<size_t>(n_threads)) thread_in_range = false;
      });
      for (const auto& r : runs) ASSERT_EQ(r.load(), 1);
      ASSERT_TRUE(thread_in_range);
    }
  }
}

TEST(ThreadPool, ManyShortJobs) {
  ThreadPool pool(4);
  std::vector<size_t> sums(64);
  for (size_t job = 0; job < 5000; ++job) {
    const size_t n = 1 + job % 64;
    pool.run(n, [&](size_t task, size_t) { sums[task] += job; });
  }
  for (size_t task = 0; task < 64; ++task) {
    size_t want = 0;
    for (size_t job = 0; job < 5000; ++job) want += task < 1 + job % 64 ? job : 0;
    ASSERT_EQ(sums[task], want);
  }
}

TEST(ThreadPool, SleepingWorkersWakeUp) {
  ThreadPool pool(3);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    std::atomic<int> n = 0;
    pool.run(50, [&](size_t, size_t) { n.fetch_add(1); });
    ASSERT_EQ(n.load(), 50);
  }
}

TEST(ThreadPool, WorkersTakePart) {
  ThreadPool pool(2);
  std::mutex mutex;
  std::set<size_t> threads;
  pool.run(40, [&](size_t, size_t thread) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::lock_guard lock(mutex);
    threads.insert(thread);
  });
  EXPECT_EQ(threads, (std::set<size_t>{0, 1}));
}

TEST(ThreadPool, ExceptionsReachTheCaller) {
  for (const int n_threads : {1, 3}) {
    ThreadPool pool(n_threads);
    for (int i = 0; i < 50; ++i) {
      try {
        pool.run(100, [&](size_t task, size_t) {
          if (task % 10 == 5) throw std::runtime_error("task");
        });
        FAIL();
      } catch (const std::runtime_error& e) {
        EXPECT_EQ(std::string(e.what()), "task");
      }
      std::atomic<int> n = 0;  // the pool lives on
      pool.run(10, [&](size_t, size_t) { n.fetch_add(1); });
      ASSERT_EQ(n.load(), 10);
    }
  }
}

TEST(ThreadPool, AllProcessorsByDefault) {
  ThreadPool pool(0);
  EXPECT_GE(pool.n_threads(), 1);
}

}  // namespace
}  // namespace logitgate
