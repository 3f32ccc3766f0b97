// A ring of page-locked buffers, filled by several threads while earlier ones cross PCIe.
// Contract: kernels/cuda/upload.h.
#include "kernels/cuda/upload.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "lib/error.h"

namespace logitgate::cuda {
namespace {

constexpr size_t kSlots = 4;
constexpr size_t kSlotBytes = size_t{34} << 20;  // a multiple of every block size and of a page
constexpr size_t kBytesAThread = size_t{1} << 20;

}  // namespace

// memcpy by several threads: one thread alone fills about a fifth of what PCIe carries, less where pages must
// be mapped first.
class CopyThreads {
 public:
  CopyThreads() {
    const unsigned n = std::clamp(std::thread::hardware_concurrency(), 1u, 12u) - 1;
    for (unsigned i = 0; i < n; i++) threads_.emplace_back([this, i] { work(i + 1); });
  }
  ~CopyThreads() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    start_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void copy(void* to, const void* from, size_t n) {
    if (n <= kBytesAThread || threads_.empty()) {
      std::memcpy(to, from, n);
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      to_ = static_cast<std::byte*>(to);
      from_ = static_cast<const std::byte*>(from);
      n_ = n;
      pending_ = threads_.size();
      round_++;
    }
    start_.notify_all();
    copy_part(0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return pending_ == 0; });
  }

 private:
  void copy_part(size_t part) {
    const size_t n_parts = threads_.size() + 1;
    const size_t size = ((n_ + n_parts - 1) / n_parts + 4095) / 4096 * 4096;
    const size_t begin = std::min(n_, part * size);
    std::memcpy(to_ + begin, from_ + begin, std::min(n_ - begin, size));
  }
  void work(size_t part) {
    uint64_t seen = 0;
    while (true) {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      lock.unlock();
      copy_part(part);
      lock.lock();
      if (--pending_ == 0) done_.notify_one();
    }
  }

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  std::byte* to_ = nullptr;
  const std::byte* from_ = nullptr;
  size_t n_ = 0;
  size_t pending_ = 0;
  uint64_t round_ = 0;
  bool stop_ = false;
};

Uploader::Uploader(cudaStream_t stream) : stream_(stream), threads_(std::make_unique<CopyThreads>()) {}

Uploader::~Uploader() { (void)cudaStreamSynchronize(stream_); }  // the slots are still being read

Uploader::Slot& Uploader::next_slot() {
  if (slots_.size() < kSlots) {
    auto slot = std::make_unique<Slot>();
    slot->pinned = pinned_allocate(kSlotBytes, "upload buffer");
    slots_.push_back(std::move(slot));
    return *slots_.back();
  }
  Slot& slot = *slots_[next_];
  next_ = (next_ + 1) % kSlots;
  LOGITGATE_CUDA(cudaEventSynchronize(slot.done));
  return slot;
}

void Uploader::upload(void* to, const Tensor& tensor) {
  const bool split = tensor.type == WeightType::Q8_0;
  for (size_t offset = 0; offset < tensor.n_bytes; offset += kSlotBytes) {
    const size_t n = std::min(kSlotBytes, tensor.n_bytes - offset);
    Slot& slot = next_slot();
    threads_->copy(slot.pinned.data(), tensor.data + offset, n);
    if (!split) {
      LOGITGATE_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(to) + offset, slot.pinned.data(), n,
                                     cudaMemcpyHostToDevice, stream_));
    } else {
      if (slot.staging.data() == nullptr) slot.staging = device_allocate(kSlotBytes, "upload staging");
      LOGITGATE_CUDA(
          cudaMemcpyAsync(slot.staging.data(), slot.pinned.data(), n, cudaMemcpyHostToDevice, stream_));
      const size_t first_block = offset / 34;
      int8_t* const quants = static_cast<int8_t*>(to) + first_block * 32;
      uint16_t* const scales =
          reinterpret_cast<uint16_t*>(static_cast<std::byte*>(to) + tensor.n_elements()) + first_block;
      split_q8_0(quants, scales, slot.staging.data(), static_cast<int64_t>(n / 34), stream_);
    }
    LOGITGATE_CUDA(cudaEventRecord(slot.done, stream_));
  }
}

}  // namespace logitgate::cuda
