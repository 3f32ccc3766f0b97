// Reads GGUF model files, versions 2 and 3, memory-mapped; a split set counts as one file.
// Contract: every count, length and offset is checked against the file before it is used; bytes of tensors are views of
// the mapping. Errors: Error{corrupt} naming file and offset, Error{unsupported} for a version, byte order or type
// that is not known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/quant/weight_type.h"

namespace logitgate {

struct GgufArray;
// Integers of every width are held as uint64_t (unsigned) or int64_t (signed), f32 and f64 as double.
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string, std::shared_ptr<GgufArray>>;
struct GgufArray {
  uint32_t element_type = 0;      // GGUF's type id
  std::vector<GgufValue> values;  // arrays of strings included
};

struct GgufTensor {
  std::string name;
  WeightType type = WeightType::F32;
  std::vector<uint64_t> ne;  // innermost first, 1 to 4 dimensions
  const std::byte* data = nullptr;
  uint64_t n_bytes = 0;
};

class GgufFile {
 public:
  // path: a GGUF file, or the first of a split set (NAME-00001-of-0000N.gguf, same directory).
  static GgufFile open(const std::string& path);
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const std::string& path() const;
  uint32_t version() const;
  const std::map<std::string, GgufValue>& metadata() const;
  const std::vector<GgufTensor>& tensors() const;  // in file order, of all parts
  const GgufTensor* find(std::string_view name) const;

  // Typed metadata. Missing: the optional is empty. Another type than asked for: Error{corrupt} naming the key.
  const GgufValue* value(std::string_view key) const;

 private:
  GgufFile();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace logitgate
