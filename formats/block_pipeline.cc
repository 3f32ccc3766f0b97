// Decoding threads and the ordered queue.
// Contract: see block_pipeline.h.
#include "formats/block_pipeline.h"

#include <algorithm>

namespace logitgate {

namespace {

constexpr size_t kSpareBuffers = 8;

}  // namespace

DecoderPool::DecoderPool(std::string name, int threads) : name_(std::move(name)) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  wanted_ = threads > 0 ? static_cast<unsigned>(threads) : cores;
  budget_ = (size_t{8} << 20) + wanted_ * (size_t{4} << 20);
}

DecoderPool::~DecoderPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    work_ready_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void decode_block(const std::string& name, BlockDecoder& decoder, PipelineItem& item) {
  try {
    decoder.decode({name, item.offset}, item.key, item.frame, item.content_size, item.rows);
  } catch (...) {
    item.failure = std::current_exception();
  }
}

void DecoderPool::submit(std::shared_ptr<PipelineItem> item, const DumpHeader& header) {
  const std::lock_guard lock(mutex_);
  if (!header_) header_ = header;
  // Threads start with the first block that is worth one: small dumps are read without.
  if (threads_.size() < wanted_ && (threads_.empty() || !queue_.empty()))
    threads_.emplace_back([this] { work(); });
  queue_.push_back(std::move(item));
  work_ready_.notify_one();
}

void DecoderPool::work() {
  std::unique_lock lock(mutex_);
  BlockDecoder decoder(*header_);
  for (;;) {
    work_ready_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const std::shared_ptr<PipelineItem> item = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    decode_block(name_, decoder, *item);
    lock.lock();
    item->ready = true;
    decoded_.notify_all();
  }
}

void DecoderPool::wait(const PipelineItem& item) {
  std::unique_lock lock(mutex_);
  decoded_.wait(lock, [&] { return item.ready; });
}

RowBlock DecoderPool::spare_rows() {
  const std::lock_guard lock(mutex_);
  RowBlock rows;
  if (spare_rows_.empty()) return rows;
  rows = std::move(spare_rows_.back());
  spare_rows_.pop_back();
  return rows;
}

ByteBuffer DecoderPool::spare_frame() {
  const std::lock_guard lock(mutex_);
  ByteBuffer frame;
  if (spare_frames_.empty()) return frame;
  frame = std::move(spare_frames_.back());
  spare_frames_.pop_back();
  return frame;
}

void DecoderPool::recycle(RowBlock&& rows) {
  const std::lock_guard lock(mutex_);
  if (spare_rows_.size() < kSpareBuffers) spare_rows_.push_back(std::move(rows));
}

void DecoderPool::recycle(ByteBuffer&& frame) {
  const std::lock_guard lock(mutex_);
  if (spare_frames_.size() < kSpareBuffers) spare_frames_.push_back(std::move(frame));
}

bool ItemQueue::push(std::shared_ptr<PipelineItem> item) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || fits(); });
  if (closed_) return false;
  cost_ += item->cost;
  items_.push_back(std::move(item));
  changed_.notify_all();
  return true;
}

bool ItemQueue::has_space() {
  const std::lock_guard lock(mutex_);
  return fits();
}

bool ItemQueue::empty() {
  const std::lock_guard lock(mutex_);
  return items_.empty();
}

std::shared_ptr<PipelineItem> ItemQueue::pop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !items_.empty(); });
  std::shared_ptr<PipelineItem> item = std::move(items_.front());
  items_.pop_front();
  cost_ -= item->cost;
  changed_.notify_all();
  return item;
}

void ItemQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

}  // namespace logitgate
