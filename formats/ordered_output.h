// Brings frames that arrive in any order into the order of their records, and writes them.
// Contract: put() is thread-safe; whoever brings the frame whose turn it is writes it and all that then
// follow. Frames ahead of their turn are kept in memory up to the bound and then spilled.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

#include "formats/byte_buffer.h"
#include "formats/output_file.h"
#include "formats/segment_index.h"
#include "formats/spill_file.h"

namespace logitgate {

class OrderedOutput {
 public:
  OrderedOutput(OutputFile& output, SegmentIndex& index, size_t memory_bound);

  // The next record in order, with its record frame and so many blocks to come. Returns its ticket.
  uint64_t add_record(uint64_t id_hash, uint32_t n_rows, uint32_t n_blocks);
  // Frame 0 is the record frame, frame b + 1 block b. The buffer comes back empty, or as one that is free for
  // reuse.
  void put(uint64_t ticket, uint32_t frame, ByteBuffer& bytes, uint32_t content_size);
  // True while frames whose turn has come wait for a slow output and fill the memory bound: the producer
  // should wait.
  bool congested();
  void wait_until_not_congested();
  // Waits until every frame of every record is written; the caller has brought them all.
  void wait_until_written();
  // Wakes those who wait; they return at once from then on (a worker failed).
  void abandon();
  uint64_t spilled_bytes() const { return spill_.bytes_written(); }

 private:
  struct Waiting {
    ByteBuffer bytes;
    uint64_t spilled_at = 0;
    uint32_t size = 0;
    uint32_t content_size = 0;
    bool spilled = false;
  };
  struct Record {
    uint64_t id_hash;
    uint32_t n_rows;
    uint32_t n_frames;
    uint32_t next_frame = 0;
    std::map<uint32_t, Waiting> waiting;
  };
  bool head_ready() const;
  void drain(std::unique_lock<std::mutex>& lock);
  void write_one(Waiting& frame);

  OutputFile& output_;
  SegmentIndex& index_;
  SpillFile spill_;
  size_t memory_bound_;

  std::mutex mutex_;
  std::condition_variable progress_;
  std::deque<Record> records_;  // not yet written to the end; the front's ticket is first_ticket_
  uint64_t first_ticket_ = 0;
  size_t waiting_bytes_ = 0;
  bool draining_ = false;
  bool abandoned_ = false;
  ByteBuffer unspilled_;
};

}  // namespace logitgate
