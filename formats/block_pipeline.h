// Items of a dump on their way to the consumer: blocks are decoded by threads, everything comes out in order.
// Contract: what is under way is bounded in bytes (one item always fits). One producer, one consumer; they
// may be one thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "formats/block_codec.h"
#include "formats/dump_format.h"
#include "formats/dump_frames.h"

namespace logitgate {

struct PipelineItem {
  enum class Kind { header, record, block, done, failed };
  Kind kind = Kind::block;
  std::optional<DumpHeader> header;
  DumpRecord record;
  BlockKey key;  // block
  uint64_t offset = 0;
  uint64_t content_size = 0;
  ByteBuffer frame;
  RowBlock rows;
  std::exception_ptr failure;  // failed, or a block that could not be decoded
  bool ready = false;
  size_t cost = 0;
};

// Decodes a block into its item; what goes wrong is kept in the item.
void decode_block(const std::string& name, BlockDecoder& decoder, PipelineItem& item);

// Threads that decode blocks; several queues may share them.
class DecoderPool {
 public:
  DecoderPool(std::string name, int threads);
  ~DecoderPool();
  void submit(std::shared_ptr<PipelineItem> item, const DumpHeader& header);
  // Waits until the item is decoded.
  void wait(const PipelineItem& item);
  size_t budget() const { return budget_; }  // bytes that may be under way
  // Row buffers for reuse, so that decoding does not allocate.
  RowBlock spare_rows();
  ByteBuffer spare_frame();
  void recycle(RowBlock&& rows);
  void recycle(ByteBuffer&& frame);

 private:
  void work();

  std::string name_;
  size_t budget_;
  unsigned wanted_;
  std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable decoded_;
  std::deque<std::shared_ptr<PipelineItem>> queue_;
  std::vector<RowBlock> spare_rows_;
  std::vector<ByteBuffer> spare_frames_;
  std::optional<DumpHeader> header_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// A queue in order of arrival, bounded by the pool's budget.
class ItemQueue {
 public:
  explicit ItemQueue(size_t budget) : budget_(budget) {}
  // False if the queue was closed. push waits for space; has_space tells whether it would not.
  bool push(std::shared_ptr<PipelineItem> item);
  bool has_space();
  std::shared_ptr<PipelineItem> pop();  // waits for an item
  bool empty();
  void close();

 private:
  bool fits() const { return items_.empty() || cost_ < budget_; }

  size_t budget_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<PipelineItem>> items_;
  size_t cost_ = 0;
  bool closed_ = false;
};

}  // namespace logitgate
