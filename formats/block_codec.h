// Codes rows into the block frames of a dump, and decodes them.
// Contract: a frame's bytes depend on header, level, rows and the zstd library alone. One encoder or decoder
// serves one thread. Decoding verifies the frame's checksum and that the block is the one expected:
// Error{corrupt} otherwise.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/byte_buffer.h"
#include "formats/dump_format.h"
#include "formats/dump_frames.h"
#include "formats/raw_frame.h"

struct ZSTD_CCtx_s;

namespace logitgate {

constexpr int kMinLevel = 1;
constexpr int kMaxLevel = 22;
constexpr int kEntropyOnlyLevel = 3;  // up to here planes are entropy coded without a search for matches

class BlockEncoder {
 public:
  BlockEncoder(const DumpHeader& header, int level);
  ~BlockEncoder();
  BlockEncoder(const BlockEncoder&) = delete;
  BlockEncoder& operator=(const BlockEncoder&) = delete;

  // rows: f32 or f64, whole rows of n_vocab, rounded to the stored type here; or what another topk dump of
  // the same K holds. Returns the content size of the frame.
  uint32_t encode(const BlockKey& key, const RowBlock& rows, ByteBuffer& frame);

 private:
  bool append_floats(const RowBlock& rows, ByteBuffer& frame);
  void append_doubles(const RowBlock& rows);
  void append_topk(const RowBlock& rows);
  const float* as_floats(const RowBlock& rows, bool to_odd);
  template <class T>
  void append_planes(const T* numbers, size_t n, bool rotate);
  template <class T>
  bool append_packed(const T* numbers, size_t n);
  template <class T>
  void split_into_frame(const T* numbers, size_t n);
  template <class T>
  bool store_planes(const T* numbers, size_t n, ByteBuffer& frame);
  void put_packed_exponents(size_t n, uint8_t top, size_t n_escapes, ByteBuffer& into);
  void compress(ByteBuffer& frame);

  StoreSpec store_;
  uint32_t n_vocab_;
  bool entropy_only_;
  ZSTD_CCtx_s* context_;
  RawFrame raw_;
  uint32_t content_size_ = 0;
  ByteBuffer payload_;
  std::vector<size_t> plane_ends_;  // zstd blocks do not straddle planes
  ByteBuffer exponents_;
  ByteBuffer packed_;
  ByteBuffer tail_;
  std::vector<uint8_t*> stored_;
  ByteBuffer compressed_;
  std::vector<float> floats_;
  std::vector<uint16_t> halves_;
  RowBlock selected_;
};

class BlockDecoder {
 public:
  explicit BlockDecoder(const DumpHeader& header);
  void decode(const FramePlace& place, const BlockKey& key, ByteSpan frame, uint64_t content_size,
              RowBlock& rows);

 private:
  void read_floats(const uint8_t* first, const uint8_t* rest, size_t n, RowBlock& rows);
  void read_topk(const FramePlace& place, const uint8_t* planes, RowBlock& rows);
  void unpack(const FramePlace& place, ByteSpan packed, size_t n);

  StoreSpec store_;
  uint32_t n_vocab_;
  FrameDecoder decoder_;
  ByteBuffer payload_;
  ByteBuffer exponents_;
  std::vector<uint16_t> halves_;
};

}  // namespace logitgate
