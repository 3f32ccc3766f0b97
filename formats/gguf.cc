// A GGUF model of one file or a split set, and its typed metadata.
// Contract: as in gguf.h; the parts of a set agree about their number and order, and no tensor is in two of
// them.
#include "formats/gguf.h"

#include <unordered_map>

#include "formats/gguf_part.h"
#include "formats/text.h"
#include "lib/error.h"

namespace logitgate {

struct GgufFile::Impl {
  std::vector<GgufPart> parts;
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, size_t> by_name;  // of tensors
};

namespace {

std::optional<uint64_t> part_integer(const GgufPart& part, const std::string& key) {
  const auto found = part.metadata.find(key);
  if (found == part.metadata.end()) return std::nullopt;
  return gguf_as_u64(part.file.path(), key, found->second);
}

std::string part_suffix(uint64_t number, uint64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

// The part's path without its "-00001-of-0000N.gguf"; Error{corrupt} where its name is not that of the first
// part.
std::string split_prefix(const GgufPart& first, uint64_t count) {
  const std::string& path = first.file.path();
  const uint64_t number = part_integer(first, "split.no").value_or(0);
  if (number != 0) {
    fail(ErrorCode::corrupt, "{}: is part {} of a split set of {}: give the first one, which ends in {}",
         path, number + 1, count, part_suffix(1, count));
  }
  const std::string suffix = part_suffix(1, count);
  if (!path.ends_with(suffix)) {
    fail(ErrorCode::corrupt,
         "{}: is the first of {} parts, so its name must end in {} and the others lie beside it", path, count,
         suffix);
  }
  return path.substr(0, path.size() - suffix.size());
}

// Another part of the set; where it cannot be opened, the first part is named too.
GgufPart open_part(const std::string& first, const std::string& path) {
  try {
    return parse_gguf_part(path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io) throw;
    fail(ErrorCode::io, "{}: is split, and all its parts must lie beside it: {}", first, error.message());
  }
}

void check_part(const GgufPart& part, uint64_t number, uint64_t count) {
  const auto no = part_integer(part, "split.no");
  const auto n = part_integer(part, "split.count");
  if (no == number && n == count) return;
  const auto said = [](std::optional<uint64_t> value) {
    return value ? fmt::format("{}", *value) : "missing";
  };
  fail(ErrorCode::corrupt,
       "{}: split.no is {} and split.count is {}, and by the file's name must be {} and {}", part.file.path(),
       said(no), said(n), number, count);
}

}  // namespace

GgufFile::GgufFile() : impl_(std::make_unique<Impl>()) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

GgufFile GgufFile::open(const std::string& path) {
  GgufFile file;
  std::vector<GgufPart>& parts = file.impl_->parts;
  parts.push_back(parse_gguf_part(path));
  const uint64_t count = part_integer(parts[0], "split.count").value_or(0);
  if (count > 1) {
    const std::string prefix = split_prefix(parts[0], count);
    for (uint64_t i = 1; i < count; ++i) {
      parts.push_back(open_part(path, prefix + part_suffix(i + 1, count)));
      check_part(parts.back(), i, count);
    }
  }
  for (GgufPart& part : parts) {
    for (GgufTensor& tensor : part.tensors) file.impl_->tensors.push_back(std::move(tensor));
    part.tensors.clear();
  }
  const std::vector<GgufTensor>& tensors = file.impl_->tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (file.impl_->by_name.emplace(tensors[i].name, i).second) continue;
    fail(ErrorCode::corrupt, "{}: tensor '{}' is in two parts of the split set", path,
         printable(tensors[i].name));
  }
  const auto total = part_integer(parts[0], "split.tensors.count");
  if (count > 1 && total && *total != tensors.size()) {
    fail(ErrorCode::corrupt, "{}: split.tensors.count is {}, and the {} parts hold {} tensors", path, *total,
         count, tensors.size());
  }
  return file;
}

const std::string& GgufFile::path() const { return impl_->parts[0].file.path(); }

std::vector<std::string> GgufFile::parts() const {
  std::vector<std::string> paths;
  for (const GgufPart& part : impl_->parts) paths.push_back(part.file.path());
  return paths;
}

uint64_t GgufFile::file_bytes() const {
  uint64_t sum = 0;
  for (const GgufPart& part : impl_->parts) sum += part.file.bytes().size();
  return sum;
}

uint32_t GgufFile::version() const { return impl_->parts[0].version; }
const std::map<std::string, GgufValue>& GgufFile::metadata() const { return impl_->parts[0].metadata; }
const std::vector<GgufTensor>& GgufFile::tensors() const { return impl_->tensors; }

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto found = impl_->by_name.find(name);
  return found == impl_->by_name.end() ? nullptr : &impl_->tensors[found->second];
}

const GgufValue* GgufFile::value(std::string_view key) const {
  const auto found = metadata().find(std::string(key));
  return found == metadata().end() ? nullptr : &found->second;
}

namespace {

[[noreturn]] void wrong_kind(const GgufFile& file, std::string_view key, const GgufValue& value,
                             std::string_view want) {
  fail(ErrorCode::corrupt, "{}: metadata '{}' is {}, and must be {}", file.path(), printable(key),
       gguf_kind(value), want);
}

uint64_t as_u64(const GgufFile& file, std::string_view key, const GgufValue& value) {
  return gguf_as_u64(file.path(), key, value);
}

double as_f64(const GgufFile& file, std::string_view key, const GgufValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<int64_t>(&value)) return static_cast<double>(*number);
  wrong_kind(file, key, value, "a number");
}

bool as_bool(const GgufFile& file, std::string_view key, const GgufValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  wrong_kind(file, key, value, "a bool");
}

std::string as_string(const GgufFile& file, std::string_view key, const GgufValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  wrong_kind(file, key, value, "a string");
}

template <class T>
using As = T (*)(const GgufFile&, std::string_view, const GgufValue&);

template <class T>
std::optional<T> get_one(const GgufFile& file, std::string_view key, As<T> as) {
  const GgufValue* value = file.value(key);
  if (value == nullptr) return std::nullopt;
  return as(file, key, *value);
}

template <class T>
std::optional<std::vector<T>> get_many(const GgufFile& file, std::string_view key, As<T> as) {
  const GgufValue* value = file.value(key);
  if (value == nullptr) return std::nullopt;
  const auto* array = std::get_if<std::shared_ptr<GgufArray>>(value);
  if (array == nullptr) wrong_kind(file, key, *value, "an array");
  std::vector<T> result;
  for (const GgufValue& element : (*array)->values()) result.push_back(as(file, key, element));
  return result;
}

}  // namespace

std::optional<uint64_t> GgufFile::get_u64(std::string_view key) const { return get_one(*this, key, as_u64); }
std::optional<double> GgufFile::get_f64(std::string_view key) const { return get_one(*this, key, as_f64); }
std::optional<bool> GgufFile::get_bool(std::string_view key) const { return get_one(*this, key, as_bool); }
std::optional<std::string> GgufFile::get_string(std::string_view key) const {
  return get_one(*this, key, as_string);
}
std::optional<std::vector<uint64_t>> GgufFile::get_u64s(std::string_view key) const {
  return get_many(*this, key, as_u64);
}
std::optional<std::vector<double>> GgufFile::get_f64s(std::string_view key) const {
  return get_many(*this, key, as_f64);
}
std::optional<std::vector<bool>> GgufFile::get_bools(std::string_view key) const {
  return get_many(*this, key, as_bool);
}
std::optional<std::vector<std::string>> GgufFile::get_strings(std::string_view key) const {
  return get_many(*this, key, as_string);
}

}  // namespace logitgate
