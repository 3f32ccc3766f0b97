// The dump reader: one thread walks the stream ahead, others decode its blocks; records found by id are read
// on demand. Contract: see dump_reader.h.
#include "formats/dump_reader.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "formats/block_pipeline.h"
#include "formats/dump_index.h"
#include "formats/dump_walker.h"
#include "formats/input_file.h"
#include "lib/error.h"

namespace logitgate {

namespace {

using Kind = PipelineItem::Kind;

// Below this a block is decoded where it is read: handing it to a thread would take longer.
constexpr uint64_t kSmallBlock = uint64_t{16} << 10;

std::shared_ptr<PipelineItem> make_item(Kind kind) {
  auto item = std::make_shared<PipelineItem>();
  item->kind = kind;
  item->ready = kind != Kind::block;
  item->cost = 256;
  return item;
}

size_t held_bytes(const RowBlock& rows) {
  return rows.f32.capacity() * sizeof(float) + rows.f64.capacity() * sizeof(double) +
         rows.ids.capacity() * sizeof(uint32_t) + rows.values.capacity() * sizeof(float);
}

}  // namespace

struct DumpReader::Impl {
  Impl(const std::string& path, const DumpReaderOptions& reader_options);
  ~Impl();

  bool decode_if_small(PipelineItem& item, std::optional<BlockDecoder>& decoder);
  void read_ahead();
  std::shared_ptr<PipelineItem> walk_one();
  std::shared_ptr<PipelineItem> block_item(const BlockKey& key, StoredFrame& frame);
  std::shared_ptr<PipelineItem> next_item();
  void start_stream();
  void scan_for_damage();
  void load_index();
  void read_found_blocks();
  bool deliver(std::shared_ptr<PipelineItem> item, RowBlock& block);

  DumpReaderOptions options;
  InputFile input;
  DecoderPool pool;
  DumpWalker walker;  // of the reading thread once that runs
  DumpHeader header;
  std::vector<DumpHeader> headers;
  std::optional<std::string> damage;
  uint64_t salvageable = 0;  // salvage: so many records are complete

  // The stream.
  ItemQueue stream;
  std::thread reading;
  std::atomic<bool> stopping{false};
  std::shared_ptr<PipelineItem> peeked;
  uint64_t records_seen = 0;
  bool at_end = false;

  // The record found by id.
  std::optional<DumpIndex> index;
  bool found = false;  // the current record is the found one
  DumpRecord found_record;
  size_t found_rows_queued = 0;
  uint64_t found_offset = 0;
  FrameScanner found_scanner;
  FrameDecoder found_decoder;
  std::optional<BlockDecoder> found_small_decoder;
  ItemQueue found_blocks;
};

DumpReader::Impl::Impl(const std::string& path, const DumpReaderOptions& reader_options)
    : options(reader_options),
      input(path),
      pool(input.name(), reader_options.threads),
      walker(
          input.name(), [this](void* data, size_t n) { return input.read(data, n); },
          reader_options.allow_mixed),
      stream(pool.budget()),
      found_scanner(input.name(),
                    [this](void* data, size_t n) {
                      const size_t got = input.read_at(found_offset, data, n);
                      found_offset += got;
                      return got;
                    }),
      found_blocks(pool.budget()) {
  if (options.salvage) scan_for_damage();
  walker.next();
  header = walker.header();
  headers.push_back(header);
}

DumpReader::Impl::~Impl() {
  stopping = true;
  stream.close();
  if (reading.joinable()) reading.join();
}

void DumpReader::Impl::scan_for_damage() {
  if (!input.seekable())
    fail(ErrorCode::usage, "{}: what is damaged can be read from a file alone", input.name());
  uint64_t at = 0;
  const CompletePart part = find_complete_part(input.name(), [&](void* data, size_t n) {
    const size_t got = input.read_at(at, data, n);
    at += got;
    return got;
  });
  salvageable = part.n_records;
  if (!part.whole) damage = part.damage;
}

std::shared_ptr<PipelineItem> DumpReader::Impl::block_item(const BlockKey& key, StoredFrame& frame) {
  auto item = make_item(Kind::block);
  item->key = key;
  item->offset = frame.offset;
  item->content_size = frame.content_size;
  item->rows = pool.spare_rows();
  // What is held counts, not what is used of it: a small block may get the buffers of a large one.
  item->cost += frame.content_size + std::max<size_t>(frame.content_size, held_bytes(item->rows)) +
                frame.bytes.capacity();
  item->frame = std::move(frame.bytes);
  frame.bytes = pool.spare_frame();
  return item;
}

// The walker's next item; block items are handed to the pool.
std::shared_ptr<PipelineItem> DumpReader::Impl::walk_one() {
  for (;;) {
    switch (walker.next()) {
      case DumpWalker::Item::header: {
        auto item = make_item(Kind::header);
        item->header = walker.segment_header();
        return item;
      }
      case DumpWalker::Item::record: {
        auto item = make_item(Kind::record);
        item->record = walker.record();
        item->cost += item->record.positions.size() * sizeof(uint32_t) + item->record.id.size();
        return item;
      }
      case DumpWalker::Item::block:
        return block_item(walker.block(), walker.frame());
      case DumpWalker::Item::done:
        return make_item(Kind::done);
      case DumpWalker::Item::index:
      case DumpWalker::Item::end:
        break;
    }
  }
}

// Decodes a block that is not worth a thread's while right here; false if it was not.
bool DumpReader::Impl::decode_if_small(PipelineItem& item, std::optional<BlockDecoder>& decoder) {
  if (item.content_size > kSmallBlock) return false;
  if (!decoder) decoder.emplace(header);
  decode_block(input.name(), *decoder, item);
  item.ready = true;
  return true;
}

void DumpReader::Impl::read_ahead() {
  std::optional<BlockDecoder> small_decoder;
  for (bool more = true; more && !stopping;) {
    std::shared_ptr<PipelineItem> item;
    try {
      item = walk_one();
    } catch (...) {
      item = make_item(Kind::failed);
      item->failure = std::current_exception();
    }
    more = item->kind != Kind::done && item->kind != Kind::failed;
    const bool decode = item->kind == Kind::block && !decode_if_small(*item, small_decoder);
    if (!stream.push(item)) return;
    if (decode) pool.submit(item, header);
  }
}

void DumpReader::Impl::start_stream() {
  if (!reading.joinable()) reading = std::thread([this] { read_ahead(); });
}

// The stream's next item but one that was looked at and left; headers are noted and passed over.
std::shared_ptr<PipelineItem> DumpReader::Impl::next_item() {
  if (peeked && peeked->kind == Kind::failed) std::rethrow_exception(peeked->failure);
  if (peeked) return std::exchange(peeked, nullptr);
  start_stream();
  for (;;) {
    std::shared_ptr<PipelineItem> item = stream.pop();
    if (item->kind == Kind::failed && options.salvage && records_seen == salvageable)
      return make_item(Kind::done);
    if (item->kind == Kind::failed) {
      peeked = item;  // it stays the answer
      std::rethrow_exception(item->failure);
    }
    if (item->kind != Kind::header) return item;
    headers.push_back(*item->header);
  }
}

bool DumpReader::Impl::deliver(std::shared_ptr<PipelineItem> item, RowBlock& block) {
  pool.wait(*item);
  if (item->failure) {
    peeked = make_item(Kind::failed);
    peeked->failure = item->failure;
    std::rethrow_exception(item->failure);
  }
  std::swap(block, item->rows);
  pool.recycle(std::move(item->rows));
  pool.recycle(std::move(item->frame));
  return true;
}

void DumpReader::Impl::load_index() {
  if (index) return;
  if (!input.seekable())
    fail(ErrorCode::io, "{}: records can be found by id in a file alone, not in a pipe", input.name());
  index.emplace(input);
  headers = index->headers();
  for (const DumpHeader& other : headers) {
    const std::string difference = segment_difference(other, header, options.allow_mixed);
    if (!difference.empty()) fail(ErrorCode::incomparable, "{}: has {}", input.name(), difference);
  }
}

// Reads the found record's next blocks as long as there is room for them.
void DumpReader::Impl::read_found_blocks() {
  const uint32_t per_block = rows_per_block(header.store, header.n_vocab);
  StoredFrame frame;
  while (found_rows_queued < found_record.positions.size() && found_blocks.has_space()) {
    const size_t left = found_record.positions.size() - found_rows_queued;
    const uint32_t first = static_cast<uint32_t>(found_rows_queued);
    const BlockKey key{found_record.index, first, static_cast<uint32_t>(std::min<size_t>(left, per_block))};
    const uint64_t content = block_payload_bytes(header.store, header.n_vocab, key.n_rows);
    if (!found_scanner.next(frame, content) || frame.skippable) {
      fail_frame({input.name(), frame.offset}, "a block of the record is missing");
    }
    const auto item = block_item(key, frame);
    const bool small = decode_if_small(*item, found_small_decoder);
    found_blocks.push(item);
    if (!small) pool.submit(item, header);
    found_rows_queued += key.n_rows;
  }
}

DumpReader::DumpReader(const std::string& input, const DumpReaderOptions& options)
    : impl_(std::make_unique<Impl>(input, options)) {}

DumpReader::~DumpReader() = default;

const std::string& DumpReader::name() const { return impl_->input.name(); }
const DumpHeader& DumpReader::header() const { return impl_->header; }
const std::vector<DumpHeader>& DumpReader::segment_headers() const { return impl_->headers; }
uint64_t DumpReader::stored_bytes() const { return impl_->input.offset(); }
bool DumpReader::seekable() const { return impl_->input.seekable(); }
std::optional<std::string> DumpReader::damage() const { return impl_->damage; }

bool DumpReader::next_record(DumpRecord& record) {
  impl_->found = false;
  if (impl_->options.salvage && impl_->records_seen == impl_->salvageable) impl_->at_end = true;
  while (!impl_->at_end) {
    const std::shared_ptr<PipelineItem> item = impl_->next_item();
    if (item->kind == Kind::block) {
      RowBlock skipped;
      impl_->deliver(item, skipped);
      impl_->pool.recycle(std::move(skipped));
      continue;
    }
    if (item->kind == Kind::done) {
      impl_->at_end = true;
      break;
    }
    record = std::move(item->record);
    ++impl_->records_seen;
    return true;
  }
  return false;
}

bool DumpReader::next_rows(RowBlock& block) {
  if (impl_->found) {
    impl_->read_found_blocks();
    if (impl_->found_blocks.empty()) return false;
    return impl_->deliver(impl_->found_blocks.pop(), block);
  }
  if (impl_->at_end || impl_->records_seen == 0) return false;
  std::shared_ptr<PipelineItem> item = impl_->next_item();
  if (item->kind == Kind::block) return impl_->deliver(std::move(item), block);
  impl_->peeked = std::move(item);
  return false;
}

bool DumpReader::find_record(const std::string& id, DumpRecord& record) {
  impl_->load_index();
  while (!impl_->found_blocks.empty()) {
    RowBlock skipped;
    impl_->deliver(impl_->found_blocks.pop(), skipped);
  }
  for (const uint64_t offset : impl_->index->candidates(id)) {
    const FramePlace place{impl_->input.name(), offset};
    impl_->found_offset = offset;
    impl_->found_scanner.moved_to(offset);
    StoredFrame frame;
    ByteBuffer payload;
    if (!impl_->found_scanner.next(frame, max_record_payload()) || frame.skippable) {
      fail_frame(place, "the index leads to something that is no record");
    }
    impl_->found_decoder.decode(place, frame.bytes, frame.content_size, payload);
    DumpRecord candidate = parse_record_payload(place, payload);
    if (candidate.id != id) continue;
    impl_->found = true;
    impl_->found_rows_queued = 0;
    impl_->found_record = candidate;
    record = std::move(candidate);
    return true;
  }
  return false;
}

uint64_t DumpReader::n_records() {
  if (!impl_->input.seekable() || impl_->options.salvage) {
    return impl_->options.salvage ? impl_->salvageable : impl_->records_seen;
  }
  impl_->load_index();
  return impl_->index->n_records();
}

DumpSummary verify_dump(const std::string& path, const DumpReaderOptions& options) {
  DumpReader reader(path, options);
  DumpSummary summary;
  summary.header = reader.header();
  DumpRecord record;
  RowBlock rows;
  while (reader.next_record(record)) {
    ++summary.records;
    summary.tokens += record.n_tokens;
    while (reader.next_rows(rows)) summary.rows += rows.n_rows;
  }
  summary.segments = reader.segment_headers().size();
  summary.stored_bytes = reader.stored_bytes();
  summary.decoded_bytes = summary.rows * stored_row_bytes(summary.header.store, summary.header.n_vocab);
  return summary;
}

}  // namespace logitgate
