// The dump writer: rows are gathered into blocks, coded by threads, and put in order by OrderedOutput.
// Contract: see dump_writer.h.
#include "formats/dump_writer.h"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "formats/block_codec.h"
#include "formats/dump_frames.h"
#include "formats/dump_walker.h"
#include "formats/input_file.h"
#include "formats/ordered_output.h"
#include "formats/output_file.h"
#include "formats/segment_index.h"
#include "lib/error.h"

namespace logitgate {

namespace {

constexpr size_t kQueuedSourceBytes = size_t{64} << 20;

size_t source_bytes(const RowBlock& rows) {
  return rows.f32.size() * sizeof(float) + rows.f64.size() * sizeof(double) + rows.ids.size() * 8 +
         rows.log_sum_exp.size() * 8;
}

bool is_regular(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

uint64_t stored_record_hash(const DumpRecord& record) {
  const ByteBuffer frame = make_frame(make_record_payload(record));
  return XXH3_64bits(frame.data(), frame.size());
}

template <class T>
void append(std::vector<T>& to, std::span<const T> from, size_t capacity) {
  to.reserve(capacity);
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

struct DumpWriter::Impl {
  struct OpenRecord {
    uint64_t index = 0;
    uint32_t n_rows = 0;
    uint32_t rows_added = 0;
    RowBlock pending;  // pending.first_row: of the block that is being filled
  };
  struct Task {
    uint64_t ticket = 0;
    uint32_t block = 0;
    BlockKey key;
    RowBlock rows;
  };

  Impl(const std::string& path, const DumpHeader& dump_header, const DumpWriterOptions& dump_options);
  ~Impl() { stop(); }

  void start_threads();
  void stop();
  void work();
  void run(BlockEncoder& encoder, Task& task, ByteBuffer& frame);
  void note_failure();
  void check_failure();
  void submit(Task task);
  bool find_finished(const std::string& path);
  void resume_part();
  OpenRecord& open_record(uint64_t ticket, uint32_t n_rows);
  template <class Append>
  void add(uint64_t ticket, uint32_t n_rows, Append append_rows);
  void hand_over(uint64_t ticket, OpenRecord& record);

  std::string name;
  DumpHeader header;
  DumpWriterOptions options;
  uint32_t block_rows;
  std::optional<OutputFile> output;  // none where the output is finished already
  SegmentIndex index;
  std::optional<OrderedOutput> ordered;
  std::vector<uint64_t> resumed_hashes;
  std::optional<uint64_t> last_index;
  std::map<uint64_t, OpenRecord> open;
  bool finished = false;

  std::mutex mutex;
  std::condition_variable work_ready;
  std::condition_variable work_taken;
  std::deque<Task> tasks;
  std::vector<RowBlock> spare;
  size_t queued_bytes = 0;
  bool stopping = false;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
};

DumpWriter::Impl::Impl(const std::string& path, const DumpHeader& dump_header,
                       const DumpWriterOptions& dump_options)
    : name(path == "-" ? "stdout" : path), header(dump_header), options(dump_options) {
  check_header(name, header);
  if (options.level < kMinLevel || options.level > kMaxLevel) {
    fail(ErrorCode::usage, "level {}: must be from {} to {}", options.level, kMinLevel, kMaxLevel);
  }
  block_rows = rows_per_block(header.store, header.n_vocab);
  const ByteBuffer payload = make_header_payload(header);
  header = parse_header_payload({name, 0}, payload);  // as a reader will see it
  if (options.resume && find_finished(path)) return;
  output.emplace(path, OutputOptions{.binary = true, .force = options.force, .resume = options.resume});
  if (options.resume) resume_part();
  if (output->offset() == 0) {
    const ByteBuffer frame = make_frame(payload);
    output->write(frame.data(), frame.size());
    index.add_frame(frame, static_cast<uint32_t>(payload.size()));
  }
  ordered.emplace(*output, index, options.memory_bound);
  start_threads();
}

bool DumpWriter::Impl::find_finished(const std::string& path) {
  if (!is_regular(path) || is_regular(path + ".part")) return false;
  InputFile input(path);
  const auto source = [&](void* data, size_t n) { return input.read(data, n); };
  DumpWalker walker(path, source, true);
  for (DumpWalker::Item item = walker.next(); item != DumpWalker::Item::done; item = walker.next()) {
    if (item == DumpWalker::Item::record) {
      const ByteBuffer& bytes = walker.frame().bytes;
      resumed_hashes.push_back(XXH3_64bits(bytes.data(), bytes.size()));
    }
    if (item != DumpWalker::Item::header) continue;
    const std::string difference = header_difference(walker.segment_header(), header);
    const char* what = walker.n_segments() > 1 ? "several segments" : difference.c_str();
    if (*what != '\0') {
      fail(ErrorCode::incomparable,
           "{}: is finished, but not with what this run has: {}; --force without --resume replaces it", path,
           what);
    }
  }
  finished = true;
  return true;
}

void DumpWriter::Impl::resume_part() {
  const std::string& part_name = output->part_path();
  uint64_t at = 0;
  const auto source = [&](void* data, size_t n) {
    const size_t got = output->read_existing(at, data, n);
    at += got;
    return got;
  };
  const uint64_t complete =
      output->existing_size() == 0 ? 0 : find_complete_part(part_name, source).end_offset;
  at = 0;
  // A segment that was finished but not renamed is finished again: its records end where the index begins.
  uint64_t records_end = 0;
  for (DumpWalker walker(part_name, source, true); walker.offset() < complete;
       records_end = walker.offset()) {
    const DumpWalker::Item item = walker.next();
    if (item == DumpWalker::Item::index || item == DumpWalker::Item::end) break;
    if (item == DumpWalker::Item::record) last_index = walker.record().index;
    if (item != DumpWalker::Item::header) continue;
    const std::string difference = header_difference(walker.segment_header(), header);
    if (difference.empty()) continue;
    fail(ErrorCode::incomparable, "{}: cannot be continued, it has {}; remove it, or run without --resume",
         part_name, difference);
  }
  at = 0;
  gather_index(
      part_name, source, records_end, index, [](ByteSpan) {},
      [&](uint64_t hash) { resumed_hashes.push_back(hash); });
  output->continue_at(records_end);
}

void DumpWriter::Impl::start_threads() {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const unsigned count = options.threads > 0 ? static_cast<unsigned>(options.threads) : cores;
  for (unsigned i = 0; i < count; ++i) threads.emplace_back([this] { work(); });
}

void DumpWriter::Impl::stop() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
    work_ready.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
  threads.clear();
}

void DumpWriter::Impl::work() {
  try {
    BlockEncoder encoder(header, options.level);
    ByteBuffer frame;
    std::unique_lock lock(mutex);
    for (;;) {
      work_ready.wait(lock, [&] { return stopping || !tasks.empty(); });
      if (tasks.empty() || failure) return;
      Task task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      const size_t bytes = source_bytes(task.rows);
      run(encoder, task, frame);
      lock.lock();
      queued_bytes -= bytes;
      spare.push_back(std::move(task.rows));
      work_taken.notify_all();
    }
  } catch (...) {
    note_failure();
  }
}

void DumpWriter::Impl::run(BlockEncoder& encoder, Task& task, ByteBuffer& frame) {
  const uint32_t content = encoder.encode(task.key, task.rows, frame);
  ordered->put(task.ticket, task.block + 1, frame, content);
}

void DumpWriter::Impl::note_failure() {
  ordered->abandon();
  const std::lock_guard lock(mutex);
  if (!failure) failure = std::current_exception();
  work_taken.notify_all();
  work_ready.notify_all();
}

void DumpWriter::Impl::check_failure() {
  const std::lock_guard lock(mutex);
  if (failure) std::rethrow_exception(failure);
}

void DumpWriter::Impl::submit(Task task) {
  ordered->wait_until_not_congested();
  const size_t bytes = source_bytes(task.rows);
  std::unique_lock lock(mutex);
  const size_t most_tasks = 2 * threads.size() + 1;
  work_taken.wait(lock, [&] {
    return failure || tasks.empty() ||
           (queued_bytes + bytes <= kQueuedSourceBytes && tasks.size() < most_tasks);
  });
  if (failure) std::rethrow_exception(failure);
  queued_bytes += bytes;
  tasks.push_back(std::move(task));
  work_ready.notify_one();
}

DumpWriter::Impl::OpenRecord& DumpWriter::Impl::open_record(uint64_t ticket, uint32_t n_rows) {
  check_failure();
  const auto found = open.find(ticket);
  if (found == open.end()) fail(ErrorCode::usage, "{}: rows for record {}, which is not open", name, ticket);
  OpenRecord& record = found->second;
  if (n_rows > record.n_rows - record.rows_added) {
    fail(ErrorCode::usage, "{}: record of index {}: more rows than its {} positions", name, record.index,
         record.n_rows);
  }
  return record;
}

// append_rows(pending, first, count, capacity): appends count of the caller's rows, from first on.
template <class Append>
void DumpWriter::Impl::add(uint64_t ticket, uint32_t n_rows, Append append_rows) {
  if (n_rows == 0) return;
  OpenRecord& record = open_record(ticket, n_rows);
  for (uint32_t done = 0; done < n_rows;) {
    RowBlock& pending = record.pending;
    const uint32_t capacity = std::min(block_rows, record.n_rows - pending.first_row);
    const uint32_t count = std::min(n_rows - done, capacity - pending.n_rows);
    append_rows(pending, done, count, capacity);
    pending.n_rows += count;
    record.rows_added += count;
    done += count;
    if (pending.n_rows == capacity) hand_over(ticket, record);
  }
  if (record.rows_added == record.n_rows) open.erase(ticket);
}

void DumpWriter::Impl::hand_over(uint64_t ticket, OpenRecord& record) {
  Task task;
  task.ticket = ticket;
  task.block = record.pending.first_row / block_rows;
  task.key = {record.index, record.pending.first_row, record.pending.n_rows};
  task.rows = std::move(record.pending);
  record.pending = {};
  {
    const std::lock_guard lock(mutex);
    if (!spare.empty()) {
      record.pending = std::move(spare.back());
      spare.pop_back();
    }
  }
  record.pending.f32.clear();
  record.pending.f64.clear();
  record.pending.ids.clear();
  record.pending.values.clear();
  record.pending.log_sum_exp.clear();
  record.pending.first_row = task.key.first_row + task.key.n_rows;
  record.pending.n_rows = 0;
  submit(std::move(task));
}

DumpWriter::DumpWriter(const std::string& output, const DumpHeader& header, const DumpWriterOptions& options)
    : impl_(std::make_unique<Impl>(output, header, options)) {}

DumpWriter::~DumpWriter() = default;

uint64_t DumpWriter::resumed_records() const { return impl_->resumed_hashes.size(); }
bool DumpWriter::already_finished() const { return !impl_->output.has_value(); }
uint64_t DumpWriter::spilled_bytes() const { return impl_->ordered ? impl_->ordered->spilled_bytes() : 0; }

void DumpWriter::check_resumed(uint64_t i, const DumpRecord& record) const {
  if (i < impl_->resumed_hashes.size() && impl_->resumed_hashes[i] == stored_record_hash(record)) return;
  fail(ErrorCode::incomparable,
       "{}: record {} of the interrupted output is not \"{}\" with these tokens and rows: the input has "
       "changed; run without "
       "--resume",
       impl_->name, i, record.id);
}

uint64_t DumpWriter::begin_record(const DumpRecord& record) {
  impl_->check_failure();
  if (!impl_->output || impl_->finished)
    fail(ErrorCode::usage, "{}: is finished; no record can follow", impl_->name);
  if (impl_->last_index && record.index <= *impl_->last_index) {
    fail(ErrorCode::usage, "{}: record {} has index {}, not above that of the record before", impl_->name,
         record.id, record.index);
  }
  const ByteBuffer payload = make_record_payload(record);
  impl_->last_index = record.index;
  const uint32_t n_rows = static_cast<uint32_t>(record.positions.size());
  const uint32_t n_blocks = n_rows / impl_->block_rows + (n_rows % impl_->block_rows != 0 ? 1 : 0);
  const uint64_t ticket = impl_->ordered->add_record(hash_id(record.id), n_rows, n_blocks);
  ByteBuffer frame = make_frame(payload);
  impl_->ordered->put(ticket, 0, frame, static_cast<uint32_t>(payload.size()));
  if (n_rows > 0) {
    Impl::OpenRecord opened;
    opened.index = record.index;
    opened.n_rows = n_rows;
    impl_->open.emplace(ticket, std::move(opened));
  }
  return ticket;
}

void DumpWriter::add_rows(uint64_t ticket, std::span<const float> logits, uint32_t n_rows) {
  const size_t width = impl_->header.n_vocab;
  if (logits.size() != width * n_rows) {
    fail(ErrorCode::usage, "{}: {} logits are not {} rows of {}", impl_->name, logits.size(), n_rows, width);
  }
  impl_->add(ticket, n_rows, [&](RowBlock& pending, uint32_t first, uint32_t count, uint32_t capacity) {
    if (!pending.f64.empty() || !pending.ids.empty())
      fail(ErrorCode::usage, "{}: rows of two kinds", impl_->name);
    append(pending.f32, logits.subspan(first * width, count * width), capacity * width);
  });
}

void DumpWriter::add_rows(uint64_t ticket, std::span<const double> logits, uint32_t n_rows) {
  const size_t width = impl_->header.n_vocab;
  if (logits.size() != width * n_rows) {
    fail(ErrorCode::usage, "{}: {} logits are not {} rows of {}", impl_->name, logits.size(), n_rows, width);
  }
  impl_->add(ticket, n_rows, [&](RowBlock& pending, uint32_t first, uint32_t count, uint32_t capacity) {
    if (!pending.f32.empty() || !pending.ids.empty())
      fail(ErrorCode::usage, "{}: rows of two kinds", impl_->name);
    append(pending.f64, logits.subspan(first * width, count * width), capacity * width);
  });
}

void DumpWriter::add_block(uint64_t ticket, const RowBlock& block) {
  if (!block.f32.empty()) return add_rows(ticket, std::span<const float>(block.f32), block.n_rows);
  if (!block.f64.empty()) return add_rows(ticket, std::span<const double>(block.f64), block.n_rows);
  const size_t k = impl_->header.store.k;
  const bool fits = impl_->header.store.type == StoreType::topk && block.ids.size() == k * block.n_rows &&
                    block.values.size() == block.ids.size() && block.log_sum_exp.size() == block.n_rows;
  if (!fits)
    fail(ErrorCode::usage, "{}: rows of another kind than {}", impl_->name, to_string(impl_->header.store));
  impl_->add(ticket, block.n_rows, [&](RowBlock& pending, uint32_t first, uint32_t count, uint32_t capacity) {
    if (!pending.f32.empty() || !pending.f64.empty())
      fail(ErrorCode::usage, "{}: rows of two kinds", impl_->name);
    append(pending.ids, std::span(block.ids).subspan(first * k, count * k), capacity * k);
    append(pending.values, std::span(block.values).subspan(first * k, count * k), capacity * k);
    append(pending.log_sum_exp, std::span(block.log_sum_exp).subspan(first, count), capacity);
  });
}

void DumpWriter::finish() {
  if (impl_->finished) return;
  impl_->check_failure();
  if (!impl_->open.empty()) {
    fail(ErrorCode::usage, "{}: record of index {} has fewer rows than positions", impl_->name,
         impl_->open.begin()->second.index);
  }
  impl_->ordered->wait_until_written();
  impl_->stop();
  impl_->check_failure();
  impl_->index.finish(impl_->header,
                      [&](ByteSpan bytes) { impl_->output->write(bytes.data(), bytes.size()); });
  impl_->output->commit();
  impl_->finished = true;
}

}  // namespace logitgate
