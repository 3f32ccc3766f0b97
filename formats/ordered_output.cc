// Ordered output: a queue of records, each with the frames that wait for their turn.
// Contract: see ordered_output.h.
#include "formats/ordered_output.h"

#include "lib/error.h"

namespace logitgate {

OrderedOutput::OrderedOutput(OutputFile& output, SegmentIndex& index, size_t memory_bound)
    : output_(output), index_(index), spill_(output.part_path()), memory_bound_(memory_bound) {}

uint64_t OrderedOutput::add_record(uint64_t id_hash, uint32_t n_rows, uint32_t n_blocks) {
  const std::lock_guard lock(mutex_);
  records_.push_back({id_hash, n_rows, n_blocks + 1, 0, {}});
  return first_ticket_ + records_.size() - 1;
}

bool OrderedOutput::head_ready() const {
  return !records_.empty() && records_.front().waiting.contains(records_.front().next_frame);
}

void OrderedOutput::put(uint64_t ticket, uint32_t frame, ByteBuffer& bytes, uint32_t content_size) {
  Waiting waiting;
  waiting.size = static_cast<uint32_t>(bytes.size());
  waiting.content_size = content_size;
  std::unique_lock lock(mutex_);
  const auto is_next = [&] { return ticket == first_ticket_ && frame == records_.front().next_frame; };
  // While the output is being written the producer is held back instead; what is under way then may exceed the bound, not
  // twice the bound.
  const size_t bound = draining_ || head_ready() ? 2 * memory_bound_ : memory_bound_;
  if (waiting_bytes_ + bytes.size() > bound && !is_next()) {
    lock.unlock();
    waiting.spilled_at = spill_.put(bytes);
    waiting.spilled = true;
    lock.lock();
  } else {
    waiting_bytes_ += bytes.size();
    std::swap(waiting.bytes, bytes);
  }
  records_[ticket - first_ticket_].waiting.emplace(frame, std::move(waiting));
  if (!draining_ && !abandoned_) drain(lock);
}

void OrderedOutput::drain(std::unique_lock<std::mutex>& lock) {
  draining_ = true;
  while (head_ready() && !abandoned_) {
    Record& record = records_.front();
    auto node = record.waiting.extract(record.next_frame);
    const bool begins = record.next_frame == 0;
    const bool ends = record.next_frame + 1 == record.n_frames;
    const uint64_t id_hash = record.id_hash;
    const uint32_t n_rows = record.n_rows;
    lock.unlock();
    try {
      if (begins) index_.begin_record(id_hash, n_rows);
      write_one(node.mapped());
    } catch (...) {
      lock.lock();
      draining_ = false;
      abandoned_ = true;
      progress_.notify_all();
      throw;
    }
    lock.lock();
    if (!node.mapped().spilled) waiting_bytes_ -= node.mapped().size;
    ++records_.front().next_frame;
    if (ends) {
      records_.pop_front();
      ++first_ticket_;
    }
    progress_.notify_all();
  }
  draining_ = false;
}

void OrderedOutput::write_one(Waiting& frame) {
  if (frame.spilled) spill_.take(frame.spilled_at, frame.size, unspilled_);
  const ByteSpan bytes = frame.spilled ? unspilled_.span() : frame.bytes.span();
  output_.write(bytes.data(), bytes.size());
  index_.add_frame(bytes, frame.content_size);
}

bool OrderedOutput::congested() {
  const std::lock_guard lock(mutex_);
  return !abandoned_ && waiting_bytes_ > memory_bound_ && (draining_ || head_ready());
}

void OrderedOutput::wait_until_not_congested() {
  std::unique_lock lock(mutex_);
  progress_.wait(
      lock, [&] { return abandoned_ || waiting_bytes_ <= memory_bound_ || !(draining_ || head_ready()); });
}

void OrderedOutput::wait_until_written() {
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return abandoned_ || (records_.empty() && !draining_); });
}

void OrderedOutput::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
  progress_.notify_all();
}

}  // namespace logitgate
