// Rows to byte planes to one zstd frame, and back.
// Contract: see block_codec.h and dump_format.md.
#define ZSTD_STATIC_LINKING_ONLY  // for the names of parameters that the library has long accepted

#include "formats/block_codec.h"

#include <zstd.h>

#include <bit>
#include <cmath>
#include <new>

#include "formats/byte_planes.h"
#include "formats/narrow_floats.h"
#include "formats/topk_rows.h"
#include "lib/error.h"

namespace logitgate {

namespace {

void set_parameter(ZSTD_CCtx* context, ZSTD_cParameter parameter, int value) {
  const size_t result = ZSTD_CCtx_setParameter(context, parameter, value);
  if (ZSTD_isError(result)) fail(ErrorCode::resource, "zstd: {}", ZSTD_getErrorName(result));
}

}  // namespace

BlockEncoder::BlockEncoder(const DumpHeader& header, int level)
    : store_(header.store), n_vocab_(header.n_vocab), context_(ZSTD_createCCtx()) {
  if (context_ == nullptr) throw std::bad_alloc();
  try {
    if (level <= kEntropyOnlyLevel) {
      // The fastest strategy with the largest step finds next to no matches: Huffman coding of literals
      // remains.
      set_parameter(context_, ZSTD_c_compressionLevel, ZSTD_minCLevel());
      set_parameter(context_, ZSTD_c_literalCompressionMode, ZSTD_lcm_huffman);
      set_parameter(context_, ZSTD_c_hashLog, ZSTD_HASHLOG_MIN);
    } else {
      set_parameter(context_, ZSTD_c_compressionLevel, level);
    }
    set_parameter(context_, ZSTD_c_checksumFlag, 1);
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
  payload_.put(uint32_t{0});
  if (store_.type == StoreType::topk) {
    append_topk(rows);
  } else if (store_.type == StoreType::f64) {
    append_doubles(rows);
  } else {
    append_floats(rows);
  }
  compress(frame);
  return static_cast<uint32_t>(payload_.size());
}

template <class T>
void BlockEncoder::append_planes(const T* numbers, size_t n, bool rotate) {
  const size_t begin = payload_.size();
  payload_.resize(begin + n * sizeof(T));
  split_planes(numbers, n, payload_.data() + begin, rotate);
  for (size_t p = 1; p <= sizeof(T); ++p) plane_ends_.push_back(begin + p * n);
}

const float* BlockEncoder::as_floats(const RowBlock& rows, bool to_odd) {
  if (!rows.f32.empty()) return rows.f32.data();
  floats_.resize(rows.f64.size());
  for (size_t i = 0; i < rows.f64.size(); ++i) {
    floats_[i] = to_odd ? round_to_odd(rows.f64[i]) : static_cast<float>(rows.f64[i]);
  }
  return floats_.data();
}

void BlockEncoder::append_floats(const RowBlock& rows) {
  const size_t n = rows.f32.size() + rows.f64.size();
  if (store_.type == StoreType::f32) {
    append_planes(reinterpret_cast<const uint32_t*>(as_floats(rows, false)), n, true);
    return;
  }
  halves_.resize(n);
  const float* floats = as_floats(rows, true);
  if (store_.type == StoreType::bf16) narrow_to_bf16(floats, n, halves_.data());
  if (store_.type == StoreType::f16) narrow_to_f16(floats, n, halves_.data());
  append_planes(halves_.data(), n, true);
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
  ZSTD_CCtx_reset(context_, ZSTD_reset_session_only);
  ZSTD_CCtx_setPledgedSrcSize(context_, payload_.size());
  frame.resize(ZSTD_compressBound(payload_.size()) + 3 * plane_ends_.size());
  ZSTD_inBuffer in{payload_.data(), 0, 0};
  ZSTD_outBuffer out{frame.data(), frame.size(), 0};
  for (size_t i = 0; i < plane_ends_.size(); ++i) {
    in.size = plane_ends_[i];
    const bool last = i + 1 == plane_ends_.size();
    const size_t left = ZSTD_compressStream2(context_, &out, &in, last ? ZSTD_e_end : ZSTD_e_flush);
    if (left != 0) {
      const char* reason = ZSTD_isError(left) ? ZSTD_getErrorName(left) : "output does not fit its bound";
      fail(ErrorCode::resource, "zstd: {}", reason);
    }
  }
  frame.resize(out.pos);
}

BlockDecoder::BlockDecoder(const DumpHeader& header) : store_(header.store), n_vocab_(header.n_vocab) {}

void BlockDecoder::decode(const FramePlace& place, const BlockKey& key, ByteSpan frame, uint64_t content_size,
                          RowBlock& rows) {
  if (content_size != block_payload_bytes(store_, n_vocab_, key.n_rows)) {
    fail_frame(place, fmt::format("block: has {} bytes, and its {} rows need {}", content_size, key.n_rows,
                                  block_payload_bytes(store_, n_vocab_, key.n_rows)));
  }
  decoder_.decode(place, frame, content_size, payload_);
  ByteReader reader(payload_);
  const bool expected = reader.get<uint32_t>() == kBlockTag && reader.get<uint64_t>() == key.record_index &&
                        reader.get<uint32_t>() == key.first_row && reader.get<uint32_t>() == key.n_rows;
  const uint32_t coding = reader.get<uint32_t>();
  if (!expected || coding != 0) fail_frame(place, "block: is not the block that must follow here");
  rows.first_row = key.first_row;
  rows.n_rows = key.n_rows;
  const uint8_t* planes = payload_.data() + kBlockHeaderBytes;
  if (store_.type == StoreType::topk) return read_topk(place, planes, rows);
  read_floats(planes, size_t{key.n_rows} * n_vocab_, rows);
}

void BlockDecoder::read_floats(const uint8_t* planes, size_t n, RowBlock& rows) {
  if (store_.type == StoreType::f64) {
    rows.f64.resize(n);
    merge_planes(planes, n, reinterpret_cast<uint64_t*>(rows.f64.data()), true);
    return;
  }
  rows.f32.resize(n);
  if (store_.type == StoreType::f32) {
    merge_planes(planes, n, reinterpret_cast<uint32_t*>(rows.f32.data()), true);
    return;
  }
  halves_.resize(n);
  merge_planes(planes, n, halves_.data(), true);
  if (store_.type == StoreType::bf16) widen_bf16(halves_.data(), n, rows.f32.data());
  if (store_.type == StoreType::f16) widen_f16(halves_.data(), n, rows.f32.data());
}

void BlockDecoder::read_topk(const FramePlace& place, const uint8_t* planes, RowBlock& rows) {
  const size_t n = size_t{rows.n_rows} * store_.k;
  rows.ids.resize(n);
  rows.values.resize(n);
  rows.log_sum_exp.resize(rows.n_rows);
  merge_planes(planes, n, rows.ids.data(), false);
  merge_planes(planes + n * 4, n, reinterpret_cast<uint32_t*>(rows.values.data()), true);
  merge_planes(planes + n * 8, rows.n_rows, reinterpret_cast<uint64_t*>(rows.log_sum_exp.data()), true);
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
