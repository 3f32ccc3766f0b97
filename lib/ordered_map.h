// Runs work on a stream of items by several threads and hands the results back in the order of the items.
// Contract: produce and consume run on the caller's thread, work on any; what is in flight is bounded by cost. An exception
// of produce, work or consume ends the run and is thrown to the caller, for the first item concerned. Results, and so
// everything added up from them, do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace logitgate {

template <class Item, class Result>
class OrderedMap {
 public:
  // produce(Item&) -> bool (false: no more), cost(const Item&) -> size_t, work(const Item&) -> Result,
  // consume(const Item&, Result&) -> bool (false: stop early).
  template <class Produce, class Cost, class Work, class Consume>
  static void run(int threads, size_t cost_bound, const Produce& produce, const Cost& cost, const Work& work,
                  const Consume& consume) {
    if (threads <= 1) {
      Item item;
      while (produce(item)) {
        Result result = work(item);
        if (!consume(item, result)) return;
        item = Item();
      }
      return;
    }
    OrderedMap map;
    map.start(threads, work);
    map.feed(2 * static_cast<size_t>(threads) + 2, cost_bound, produce, cost, consume);
  }

 private:
  struct Task {
    Item item;
    Result result;
    std::exception_ptr error;
    size_t cost = 0;
    bool done = false;
  };

  ~OrderedMap() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  template <class Work>
  void start(int threads, const Work& work) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, &work] {
        while (Task* task = take()) {
          try {
            task->result = work(task->item);
          } catch (...) {
            task->error = std::current_exception();
          }
          {
            const std::lock_guard lock(mutex_);
            task->done = true;
          }
          finished_.notify_one();
        }
      });
    }
  }

  Task* take() {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return nullptr;
    Task* task = waiting_.front();
    waiting_.pop_front();
    return task;
  }

  template <class Produce, class Cost, class Consume>
  void feed(size_t max_tasks, size_t cost_bound, const Produce& produce, const Cost& cost,
            const Consume& consume) {
    size_t in_flight = 0;
    const auto retire = [&] {
      Task& front = *tasks_.front();
      {
        std::unique_lock lock(mutex_);
        finished_.wait(lock, [&front] { return front.done; });
      }
      if (front.error) std::rethrow_exception(front.error);
      const bool go_on = consume(front.item, front.result);
      in_flight -= front.cost;
      tasks_.pop_front();
      return go_on;
    };
    const auto finished = [&] {
      const std::lock_guard lock(mutex_);
      return !tasks_.empty() && tasks_.front()->done;
    };
    for (bool more = true; more;) {
      auto task = std::make_unique<Task>();
      std::exception_ptr error;
      try {
        more = produce(task->item);
      } catch (...) {
        error = std::current_exception();
      }
      if (error || !more) {
        // Items before the trouble come first: what is wrong with them is reported before it.
        while (!tasks_.empty()) {
          if (!retire()) return;
        }
        if (error) std::rethrow_exception(error);
        return;
      }
      task->cost = cost(task->item);
      in_flight += task->cost;
      {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(task.get());
        tasks_.push_back(std::move(task));
      }
      wake_.notify_one();
      while (!tasks_.empty() && (tasks_.size() >= max_tasks || in_flight > cost_bound || finished())) {
        if (!retire()) return;
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;             // a task waits, or the end
  std::condition_variable finished_;         // a task is done
  std::deque<std::unique_ptr<Task>> tasks_;  // in order; the caller's thread alone
  std::deque<Task*> waiting_;
  std::vector<std::thread> threads_;
  bool stop_ = false;
};

}  // namespace logitgate
