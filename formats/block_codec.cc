// Rows to byte planes to one zstd frame, and back.
// Contract: see block_codec.h and dump_format.md.
#define ZSTD_STATIC_LINKING_ONLY  // for the names of parameters that the library has long accepted

#include "formats/block_codec.h"

#include <zstd.h>

#include <bit>
#include <cmath>
#include <new>

#include "formats/byte_planes.h"
#include "formats/exponent_pack.h"
#include "formats/narrow_floats.h"
#include "formats/topk_rows.h"
#include "lib/error.h"

namespace logitgate {

namespace {

void set_parameter(ZSTD_CCtx* context, ZSTD_cParameter parameter, int value) {
  const size_t result = ZSTD_CCtx_setParameter(context, parameter, value);
  if (ZSTD_isError(result)) fail(ErrorCode::resource, "zstd: {}", ZSTD_getErrorName(result));
}

// How a block's planes are laid out.
enum Coding : uint32_t {
  kPlanes = 0,  // all planes, the most significant first
  kPackedExponents =
      1,  // the planes but the first; u32 number of escapes, u8 top, escapes; the first plane packed
};
constexpr size_t kPackedHeadBytes = 5;
constexpr size_t kMinStored = 8192;  // below, libzstd sees all planes: a sample would not be much smaller
constexpr size_t kElementsAnEscape =
    64;  // with more escapes than one in so many, planes are kept as they are

bool has_byte_exponents(StoreType type) { return type == StoreType::f32 || type == StoreType::bf16; }

void set_coding(ByteBuffer& payload, uint32_t coding) {
  std::memcpy(payload.data() + kBlockHeaderBytes - sizeof coding, &coding, sizeof coding);
}

// 256 log2(x) for x >= 1, linear between powers of two: integers, so that the choice is the same everywhere.
uint64_t log2_256(uint32_t x) {
  const int exponent = std::bit_width(x) - 1;
  return static_cast<uint64_t>(exponent) * 256 + (((uint64_t{x} << 8) >> exponent) - 256);
}

// True if no plane but the first would lose a twelfth of its bytes or more to an entropy coder, by a fixed sample of each.
// What is less is not worth the time: it is a hundredth or two of the block, and costs as much as all the rest.
template <class T>
bool looks_random(const T* numbers, size_t n) {
  constexpr size_t kSample = 4096;
  constexpr size_t kRun = 64;
  uint32_t counts[sizeof(T)][256] = {};
  for (size_t i = 0; i < kSample; ++i) {
    const T x = numbers[i / kRun * (n / (kSample / kRun)) + i % kRun];
    const T u = static_cast<T>(static_cast<T>(x << 1) | static_cast<T>(x >> (sizeof(T) * 8 - 1)));
    for (size_t p = 1; p < sizeof(T); ++p) ++counts[p][(u >> (8 * (sizeof(T) - 1 - p))) & 255];
  }
  for (size_t p = 1; p < sizeof(T); ++p) {
    uint64_t saved = 0;  // entropy = log2(kSample) - sum of count * log2(count) / kSample
    for (const uint32_t count : counts[p]) saved += count == 0 ? 0 : count * log2_256(count);
    constexpr uint64_t kFewestBits = 256 * 22 / 3;  // 7 1/3 bits a byte
    if (saved > kSample * (log2_256(kSample) - kFewestBits)) return false;
  }
  return true;
}

size_t element_bytes(StoreType type) { return type == StoreType::f32 ? 4 : 2; }

}  // namespace

BlockEncoder::BlockEncoder(const DumpHeader& header, int level)
    : store_(header.store),
      n_vocab_(header.n_vocab),
      entropy_only_(level <= kEntropyOnlyLevel),
      context_(ZSTD_createCCtx()) {
  if (context_ == nullptr) throw std::bad_alloc();
  try {
    if (entropy_only_) {
      // The fastest strategy with the largest step finds next to no matches: Huffman coding of literals
      // remains.
      set_parameter(context_, ZSTD_c_compressionLevel, ZSTD_minCLevel());
      set_parameter(context_, ZSTD_c_literalCompressionMode, ZSTD_lcm_huffman);
      set_parameter(context_, ZSTD_c_hashLog, ZSTD_HASHLOG_MIN);
    } else {
      set_parameter(context_, ZSTD_c_compressionLevel, level);
    }
    set_parameter(context_, ZSTD_c_contentSizeFlag, 0);  // RawFrame writes size and checksum
    set_parameter(context_, ZSTD_c_stableInBuffer, 1);
    set_parameter(context_, ZSTD_c_stableOutBuffer, 1);
  } catch (...) {
    ZSTD_freeCCtx(context_);
    throw;
  }
}

BlockEncoder::~BlockEncoder() { ZSTD_freeCCtx(context_); }

uint32_t BlockEncoder::encode(const BlockKey& key, const RowBlock& rows, ByteBuffer& frame) {
  payload_.clear();
  plane_ends_.clear();
  payload_.reserve(block_payload_bytes(store_, n_vocab_, key.n_rows));
  payload_.put(kBlockTag);
  payload_.put(key.record_index);
  payload_.put(key.first_row);
  payload_.put(key.n_rows);
  payload_.put(uint32_t{kPlanes});
  content_size_ = 0;
  bool framed = false;
  if (store_.type == StoreType::topk) {
    append_topk(rows);
  } else if (store_.type == StoreType::f64) {
    append_doubles(rows);
  } else {
    framed = append_floats(rows, frame);
  }
  if (!framed) compress(frame);
  return content_size_;
}

template <class T>
void BlockEncoder::append_planes(const T* numbers, size_t n, bool rotate) {
  const size_t begin = payload_.size();
  payload_.resize(begin + n * sizeof(T));
  split_planes(numbers, n, payload_.data() + begin, payload_.data() + begin + n, rotate);
  for (size_t p = 1; p <= sizeof(T); ++p) plane_ends_.push_back(begin + p * n);
}

// Appends planes with their exponents packed; appends nothing and returns false where that would not pay.
template <class T>
bool BlockEncoder::append_packed(const T* numbers, size_t n) {
  exponents_.resize(n);
  packed_.resize((n + 1) / 2);
  payload_.resize(kBlockHeaderBytes + n * (sizeof(T) - 1));
  split_planes(numbers, n, exponents_.data(), payload_.data() + kBlockHeaderBytes, true);
  const uint8_t top = choose_top(exponents_.data(), n);
  const size_t n_escapes = pack_exponents(exponents_.data(), n, top, packed_.data());
  if (n_escapes * kElementsAnEscape > n || kPackedHeadBytes + n_escapes + packed_.size() > n) {
    payload_.resize(kBlockHeaderBytes);
    return false;
  }
  for (size_t p = 1; p < sizeof(T); ++p) plane_ends_.push_back(kBlockHeaderBytes + p * n);
  put_packed_exponents(n, top, n_escapes, payload_);
  plane_ends_.push_back(payload_.size());
  set_coding(payload_, kPackedExponents);
  return true;
}

void BlockEncoder::put_packed_exponents(size_t n, uint8_t top, size_t n_escapes, ByteBuffer& into) {
  into.put(static_cast<uint32_t>(n_escapes));
  into.put(top);
  const size_t escapes_at = into.size();
  into.resize(escapes_at + n_escapes);
  if (n_escapes > 0) collect_escapes(exponents_.data(), n, packed_.data(), into.data() + escapes_at);
  into.append(packed_.data(), packed_.size());
}

// Splits numbers into the first plane, in exponents_, and stored zstd blocks of the frame for the others, in stored_.
template <class T>
void BlockEncoder::split_into_frame(const T* numbers, size_t n) {
  const size_t chunks = (n + kMaxZstdBlock - 1) / kMaxZstdBlock;
  stored_.clear();
  for (size_t p = 1; p < sizeof(T); ++p) {
    for (size_t at = 0; at < n; at += kMaxZstdBlock) {
      stored_.push_back(raw_.add_stored(std::min(n - at, kMaxZstdBlock)));
    }
  }
  exponents_.resize(n);
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    const size_t at = chunk * kMaxZstdBlock;
    uint8_t* planes[sizeof(T)] = {exponents_.data() + at};
    for (size_t p = 1; p < sizeof(T); ++p) planes[p] = stored_[(p - 1) * chunks + chunk];
    split_planes(numbers + at, std::min(n - at, kMaxZstdBlock), planes, true);
  }
}

// The same content as append_packed's, but all planes behind the first are stored without asking libzstd, written where they
// belong in the frame. False, with nothing done, where they may be compressible or exponents do not pack.
template <class T>
bool BlockEncoder::store_planes(const T* numbers, size_t n, ByteBuffer& frame) {
  if (!entropy_only_ || n < kMinStored || !looks_random(numbers, n)) return false;
  const size_t planes_bytes = n * (sizeof(T) - 1);
  const size_t most_tail = kPackedHeadBytes + n / kElementsAnEscape + (n + 1) / 2;
  const size_t headers = 3 * (sizeof(T) + planes_bytes / kMaxZstdBlock);
  raw_.begin(frame, kBlockHeaderBytes + planes_bytes + headers + ZSTD_compressBound(most_tail));
  uint8_t* header = raw_.add_stored(kBlockHeaderBytes);
  split_into_frame(numbers, n);
  packed_.resize((n + 1) / 2);
  const uint8_t top = choose_top(exponents_.data(), n);
  const size_t n_escapes = pack_exponents(exponents_.data(), n, top, packed_.data());
  if (n_escapes * kElementsAnEscape > n) return false;
  tail_.clear();
  put_packed_exponents(n, top, n_escapes, tail_);
  compressed_.resize(ZSTD_compressBound(tail_.size()));
  const size_t size =
      ZSTD_compress2(context_, compressed_.data(), compressed_.size(), tail_.data(), tail_.size());
  if (ZSTD_isError(size)) fail(ErrorCode::resource, "zstd: {}", ZSTD_getErrorName(size));
  set_coding(payload_, kPackedExponents);
  std::memcpy(header, payload_.data(), kBlockHeaderBytes);
  raw_.checksum(header, kBlockHeaderBytes);
  const size_t chunks = stored_.size() / (sizeof(T) - 1);
  for (size_t i = 0; i < stored_.size(); ++i) {
    raw_.checksum(stored_[i], std::min(n - i % chunks * kMaxZstdBlock, kMaxZstdBlock));
  }
  content_size_ = static_cast<uint32_t>(kBlockHeaderBytes + planes_bytes + tail_.size());
  raw_.end_with({compressed_.data(), size}, tail_, content_size_);
  return true;
}

const float* BlockEncoder::as_floats(const RowBlock& rows, bool to_odd) {
  if (!rows.f32.empty()) return rows.f32.data();
  floats_.resize(rows.f64.size());
  for (size_t i = 0; i < rows.f64.size(); ++i) {
    floats_[i] = to_odd ? round_to_odd(rows.f64[i]) : static_cast<float>(rows.f64[i]);
  }
  return floats_.data();
}

// True if the frame is complete already.
bool BlockEncoder::append_floats(const RowBlock& rows, ByteBuffer& frame) {
  const size_t n = rows.f32.size() + rows.f64.size();
  const auto append = [&](const auto* numbers, bool byte_exponents) {
    if (byte_exponents && store_planes(numbers, n, frame)) return true;
    if (!byte_exponents || !append_packed(numbers, n)) append_planes(numbers, n, true);
    return false;
  };
  if (store_.type == StoreType::f32) {
    return append(reinterpret_cast<const uint32_t*>(as_floats(rows, false)), true);
  }
  halves_.resize(n);
  const float* floats = as_floats(rows, true);
  if (store_.type == StoreType::bf16) narrow_to_bf16(floats, n, halves_.data());
  if (store_.type == StoreType::f16) narrow_to_f16(floats, n, halves_.data());
  return append(halves_.data(), has_byte_exponents(store_.type));
}

void BlockEncoder::append_doubles(const RowBlock& rows) {
  if (rows.f32.empty()) {
    append_planes(reinterpret_cast<const uint64_t*>(rows.f64.data()), rows.f64.size(), true);
    return;
  }
  const std::vector<double> doubles(rows.f32.begin(), rows.f32.end());
  append_planes(reinterpret_cast<const uint64_t*>(doubles.data()), doubles.size(), true);
}

void BlockEncoder::append_topk(const RowBlock& rows) {
  const RowBlock* from = &rows;
  if (rows.ids.empty()) {
    const float* floats = as_floats(rows, false);
    selected_.ids.resize(size_t{rows.n_rows} * store_.k);
    selected_.values.resize(size_t{rows.n_rows} * store_.k);
    selected_.log_sum_exp.resize(rows.n_rows);
    for (size_t r = 0; r < rows.n_rows; ++r) {
      const size_t at = r * n_vocab_;
      select_topk({floats + at, n_vocab_}, store_.k, &selected_.ids[r * store_.k],
                  &selected_.values[r * store_.k]);
      selected_.log_sum_exp[r] = rows.f32.empty() ? log_sum_exp(std::span(rows.f64).subspan(at, n_vocab_))
                                                  : log_sum_exp(std::span(rows.f32).subspan(at, n_vocab_));
    }
    from = &selected_;
  }
  append_planes(from->ids.data(), from->ids.size(), false);
  append_planes(reinterpret_cast<const uint32_t*>(from->values.data()), from->values.size(), true);
  append_planes(reinterpret_cast<const uint64_t*>(from->log_sum_exp.data()), from->log_sum_exp.size(), true);
}

void BlockEncoder::compress(ByteBuffer& frame) {
  content_size_ = static_cast<uint32_t>(payload_.size());
  compressed_.resize(ZSTD_compressBound(payload_.size()) + 3 * plane_ends_.size());
  ZSTD_CCtx_reset(context_, ZSTD_reset_session_only);
  ZSTD_CCtx_setPledgedSrcSize(context_, payload_.size());
  ZSTD_inBuffer in{payload_.data(), 0, 0};
  ZSTD_outBuffer out{compressed_.data(), compressed_.size(), 0};
  for (size_t i = 0; i < plane_ends_.size(); ++i) {
    in.size = plane_ends_[i];
    const bool last = i + 1 == plane_ends_.size();
    const size_t left = ZSTD_compressStream2(context_, &out, &in, last ? ZSTD_e_end : ZSTD_e_flush);
    if (left != 0) {
      const char* reason = ZSTD_isError(left) ? ZSTD_getErrorName(left) : "output does not fit its bound";
      fail(ErrorCode::resource, "zstd: {}", reason);
    }
  }
  raw_.begin(frame, out.pos);
  raw_.end_with({compressed_.data(), out.pos}, payload_, content_size_);
}

BlockDecoder::BlockDecoder(const DumpHeader& header) : store_(header.store), n_vocab_(header.n_vocab) {}

void BlockDecoder::decode(const FramePlace& place, const BlockKey& key, ByteSpan frame, uint64_t content_size,
                          RowBlock& rows) {
  const uint64_t plain_size = block_payload_bytes(store_, n_vocab_, key.n_rows);
  if (content_size > plain_size || content_size < kBlockHeaderBytes) {
    fail_frame(place, fmt::format("block: has {} bytes, and its {} rows need {}", content_size, key.n_rows,
                                  plain_size));
  }
  decoder_.decode(place, frame, content_size, payload_);
  ByteReader reader(payload_);
  const bool expected = reader.get<uint32_t>() == kBlockTag && reader.get<uint64_t>() == key.record_index &&
                        reader.get<uint32_t>() == key.first_row && reader.get<uint32_t>() == key.n_rows;
  const uint32_t coding = reader.get<uint32_t>();
  if (!expected) fail_frame(place, "block: is not the block that must follow here");
  rows.first_row = key.first_row;
  rows.n_rows = key.n_rows;
  const size_t n = size_t{key.n_rows} * n_vocab_;
  const uint8_t* planes = payload_.data() + kBlockHeaderBytes;
  if (coding == kPlanes && content_size == plain_size) {
    if (store_.type == StoreType::topk) return read_topk(place, planes, rows);
    return read_floats(planes, planes + n, n, rows);
  }
  if (coding != kPackedExponents || !has_byte_exponents(store_.type)) {
    fail_frame(place, "block: is of another size than its rows, or of an unknown coding");
  }
  const size_t rest = n * (element_bytes(store_.type) - 1);
  reader.take(rest);
  unpack(place, reader.take(reader.left()), n);
  if (!reader.ok()) fail_frame(place, "block: is too short for its rows");
  read_floats(exponents_.data(), planes, n, rows);
}

void BlockDecoder::unpack(const FramePlace& place, ByteSpan packed, size_t n) {
  ByteReader reader(packed);
  const size_t n_escapes = reader.get<uint32_t>();
  const uint8_t top = reader.get<uint8_t>();
  const ByteSpan escapes = reader.take(n_escapes);
  const ByteSpan nibbles = reader.take((n + 1) / 2);
  if (!reader.done()) fail_frame(place, "block: its exponents are of another size than its rows");
  exponents_.resize(n);
  unpack_exponents(nibbles.data(), n, top, exponents_.data());
  if (!place_escapes(nibbles.data(), n, escapes.data(), n_escapes, exponents_.data())) {
    fail_frame(place, "block: has more or fewer escaped exponents than it lists");
  }
}

void BlockDecoder::read_floats(const uint8_t* first, const uint8_t* rest, size_t n, RowBlock& rows) {
  if (store_.type == StoreType::f64) {
    rows.f64.resize(n);
    merge_planes(first, rest, n, reinterpret_cast<uint64_t*>(rows.f64.data()), true);
    return;
  }
  rows.f32.resize(n);
  if (store_.type == StoreType::f32) {
    merge_planes(first, rest, n, reinterpret_cast<uint32_t*>(rows.f32.data()), true);
    return;
  }
  halves_.resize(n);
  merge_planes(first, rest, n, halves_.data(), true);
  if (store_.type == StoreType::bf16) widen_bf16(halves_.data(), n, rows.f32.data());
  if (store_.type == StoreType::f16) widen_f16(halves_.data(), n, rows.f32.data());
}

void BlockDecoder::read_topk(const FramePlace& place, const uint8_t* planes, RowBlock& rows) {
  const size_t n = size_t{rows.n_rows} * store_.k;
  rows.ids.resize(n);
  rows.values.resize(n);
  rows.log_sum_exp.resize(rows.n_rows);
  const uint8_t* values = planes + n * 4;
  const uint8_t* sums = planes + n * 8;
  merge_planes(planes, planes + n, n, rows.ids.data(), false);
  merge_planes(values, values + n, n, reinterpret_cast<uint32_t*>(rows.values.data()), true);
  merge_planes(sums, sums + rows.n_rows, rows.n_rows, reinterpret_cast<uint64_t*>(rows.log_sum_exp.data()),
               true);
  for (size_t i = 0; i < n; ++i) {
    if (rows.ids[i] >= n_vocab_) fail_frame(place, "block: a token id lies outside the vocabulary");
    if (i % store_.k == 0) continue;
    const float before = rows.values[i - 1];
    const float value = rows.values[i];
    const bool tied = value == before || (std::isnan(value) && std::isnan(before));
    const bool falling = value < before || (std::isnan(before) && !std::isnan(value));
    if (!falling && !(tied && rows.ids[i] > rows.ids[i - 1])) fail_frame(place, "block: values do not fall");
  }
}

}  // namespace logitgate
