// Growable bytes that are not cleared before use, and little-endian fields put into and taken from them.
// Contract: ByteReader never reads past its end: it reports through ok(), and returns zeros.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace logitgate {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian, and fields are copied as they are");

using ByteSpan = std::span<const uint8_t>;

class ByteBuffer {
 public:
  uint8_t* data() { return bytes_.get(); }
  const uint8_t* data() const { return bytes_.get(); }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  ByteSpan span() const { return {bytes_.get(), size_}; }
  operator ByteSpan() const { return span(); }
  void clear() { size_ = 0; }

  void reserve(size_t n) {
    if (n <= capacity_) return;
    const size_t grown = n > capacity_ * 2 ? n : capacity_ * 2;
    std::unique_ptr<uint8_t[]> bytes(new uint8_t[grown]);
    if (size_ > 0) std::memcpy(bytes.get(), bytes_.get(), size_);
    bytes_ = std::move(bytes);
    capacity_ = grown;
  }
  // New bytes hold anything.
  void resize(size_t n) {
    reserve(n);
    size_ = n;
  }
  void append(const void* data, size_t n) {
    if (n == 0) return;
    reserve(size_ + n);
    std::memcpy(bytes_.get() + size_, data, n);
    size_ += n;
  }
  void append(std::string_view text) { append(text.data(), text.size()); }
  template <class T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    append(&value, sizeof value);
  }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

class ByteReader {
 public:
  explicit ByteReader(ByteSpan bytes) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  size_t left() const { return bytes_.size() - at_; }
  bool done() const { return ok_ && left() == 0; }

  template <class T>
  T get() {
    T value{};
    const ByteSpan bytes = take(sizeof value);
    if (ok_) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  ByteSpan take(size_t n) {
    if (!ok_ || n > left()) {
      ok_ = false;
      return {};
    }
    const ByteSpan bytes = bytes_.subspan(at_, n);
    at_ += n;
    return bytes;
  }
  std::string_view text(size_t n) {
    const ByteSpan bytes = take(n);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  ByteSpan bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace logitgate
