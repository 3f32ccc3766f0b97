// Reads GGUF model files, versions 2 and 3, memory-mapped; a split set counts as one file.
// Contract: every count, length and offset is checked against the file before it is used; bytes of tensors
// and arrays are views of the mapping, valid as long as the GgufFile. Errors: Error{io} where a file cannot
// be mapped, Error{corrupt} naming file and offset, Error{unsupported} for a version, byte order or tensor
// type that is not known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "formats/quant/weight_type.h"

namespace logitgate {

struct GgufArray;
// Integers of every width are held as uint64_t (unsigned) or int64_t (signed), f32 and f64 as double.
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string, std::shared_ptr<GgufArray>>;

// An array as the file holds it, checked when the file was opened, decoded when asked for.
struct GgufArray {
  uint32_t element_type = 0;        // GGUF's id of a value type
  uint64_t size = 0;                // elements
  const std::byte* data = nullptr;  // their encoding in the mapping
  uint64_t n_bytes = 0;

  std::vector<GgufValue> values() const;  // arrays of strings and nested arrays included
};

// "u32", "string", …; what a value is, for messages and listings.
std::string_view gguf_type_name(uint32_t value_type);

struct GgufTensor {
  std::string name;
  WeightType type = WeightType::F32;
  std::vector<uint64_t> ne;  // innermost first, 1 to 4 dimensions, none zero; the product is below 2^63
  const std::byte* data = nullptr;  // aligned to 8 bytes at least
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
  std::vector<std::string> parts() const;  // the files of the set in order; one where it is not split
  uint64_t file_bytes() const;             // of all parts
  uint32_t version() const;
  const std::map<std::string, GgufValue>& metadata() const;  // of the first part
  const std::vector<GgufTensor>& tensors() const;            // in file order, of all parts
  const GgufTensor* find(std::string_view name) const;

  // Metadata. Missing: nullptr or an empty optional. Another type than asked for: Error{corrupt} naming the
  // key.
  const GgufValue* value(std::string_view key) const;
  std::optional<uint64_t> get_u64(std::string_view key) const;  // any integer type, if not negative
  std::optional<double> get_f64(std::string_view key) const;    // any float or integer type
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::string> get_string(std::string_view key) const;
  std::optional<std::vector<uint64_t>> get_u64s(std::string_view key) const;  // arrays of such
  std::optional<std::vector<double>> get_f64s(std::string_view key) const;
  std::optional<std::vector<bool>> get_bools(std::string_view key) const;
  std::optional<std::vector<std::string>> get_strings(std::string_view key) const;

 private:
  GgufFile();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace logitgate
