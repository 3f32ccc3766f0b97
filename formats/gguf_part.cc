// Parses one GGUF file: header, metadata, tensor table.
// Contract: the cursor never reads past the file; a count is bounded by the bytes that are left before
// anything is reserved for it, so memory is bounded by the file's size.
#include "formats/gguf_part.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "formats/text.h"
#include "lib/error.h"

namespace logitgate {
namespace {

enum ValueType : uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  string,
  array,
  u64,
  i64,
  f64,
  n_value_types
};
constexpr std::string_view kTypeNames[n_value_types] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                        "bool", "string", "array", "u64", "i64", "f64"};
// Bytes of a value; for a string or an array the least that one takes.
constexpr uint64_t kLeastBytes[n_value_types] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
constexpr int kMaxArrayDepth = 8;
constexpr uint64_t kLeastEntryBytes = 8 + 1 + 4 + 1;  // key of one byte, type, value of one byte
constexpr uint64_t kLeastTensorBytes =
    8 + 1 + 4 + 8 + 4 + 8;  // name of one byte, one dimension, type, offset
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kLeastAlignment = 8;

// Reads little-endian values from the file's bytes, in order, and knows where it is.
class Cursor {
 public:
  Cursor(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  const std::string& path() const { return path_; }
  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }
  uint64_t size() const { return bytes_.size(); }
  const std::byte* here() const { return bytes_.data() + position_; }

  // Steps over n bytes of `what`.
  const std::byte* take(uint64_t n, std::string_view what) {
    if (n > left()) {
      fail(ErrorCode::corrupt,
           "{}: offset {}: {} takes {} bytes but the file ends after {}: it is cut or damaged", path_,
           position_, what, n, left());
    }
    const std::byte* start = here();
    position_ += n;
    return start;
  }
  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what), sizeof(T));
    return value;
  }
  std::string_view text(std::string_view what) {
    const auto length = number<uint64_t>(what);
    return {reinterpret_cast<const char*>(take(length, what)), length};
  }
  // A count of things that take least_bytes each, at least: no more than the file can hold.
  uint64_t count(uint64_t n, uint64_t least_bytes, std::string_view what) const {
    if (n > left() / least_bytes) {
      fail(ErrorCode::corrupt,
           "{}: offset {}: {} {} cannot fit in the {} bytes left: the file is cut or damaged", path_,
           position_, n, what, left());
    }
    return n;
  }

 private:
  const std::string& path_;
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

uint32_t value_type(Cursor& in, std::string_view what) {
  const uint64_t at = in.position();
  const auto type = in.number<uint32_t>(what);
  if (type >= n_value_types) {
    fail(ErrorCode::corrupt, "{}: offset {}: {} has value type {}, and GGUF has 0 to {}", in.path(), at, what,
         type, n_value_types - 1);
  }
  return type;
}

bool read_bool(Cursor& in, std::string_view what) {
  const uint64_t at = in.position();
  const auto value = in.number<uint8_t>(what);
  if (value > 1)
    fail(ErrorCode::corrupt, "{}: offset {}: {} is {}, and a bool is 0 or 1", in.path(), at, what, value);
  return value == 1;
}

std::shared_ptr<GgufArray> read_array(Cursor& in, std::string_view what, int depth);

// Steps over one value, with all the checks of reading it.
void skip_value(Cursor& in, uint32_t type, std::string_view what, int depth) {
  switch (type) {
    case boolean:
      read_bool(in, what);
      break;
    case string:
      in.text(what);
      break;
    case array:
      read_array(in, what, depth + 1);
      break;
    default:
      in.take(kLeastBytes[type], what);
  }
}

std::shared_ptr<GgufArray> read_array(Cursor& in, std::string_view what, int depth) {
  if (depth > kMaxArrayDepth) {
    fail(ErrorCode::corrupt, "{}: offset {}: {} nests arrays more than {} deep", in.path(), in.position(),
         what, kMaxArrayDepth);
  }
  auto result = std::make_shared<GgufArray>();
  result->element_type = value_type(in, what);
  const uint64_t least = kLeastBytes[result->element_type];
  result->size = in.count(in.number<uint64_t>(what), least, fmt::format("elements of {}", what));
  result->data = in.here();
  const bool fixed =
      result->element_type != boolean && result->element_type != string && result->element_type != array;
  if (fixed) {
    in.take(result->size * least, what);
  } else {
    for (uint64_t i = 0; i < result->size; ++i) skip_value(in, result->element_type, what, depth);
  }
  result->n_bytes = static_cast<uint64_t>(in.here() - result->data);
  return result;
}

GgufValue read_value(Cursor& in, uint32_t type, std::string_view what, int depth = 1) {
  switch (type) {
    case u8:
      return uint64_t{in.number<uint8_t>(what)};
    case u16:
      return uint64_t{in.number<uint16_t>(what)};
    case u32:
      return uint64_t{in.number<uint32_t>(what)};
    case u64:
      return in.number<uint64_t>(what);
    case i8:
      return int64_t{in.number<int8_t>(what)};
    case i16:
      return int64_t{in.number<int16_t>(what)};
    case i32:
      return int64_t{in.number<int32_t>(what)};
    case i64:
      return in.number<int64_t>(what);
    case f32:
      return double{in.number<float>(what)};
    case f64:
      return in.number<double>(what);
    case boolean:
      return read_bool(in, what);
    case string:
      return std::string(in.text(what));
    default:
      return read_array(in, what, depth);
  }
}

// Magic and version; the version is 2 or 3.
uint32_t read_version(Cursor& in) {
  if (in.size() < 4 || std::memcmp(in.here(), "GGUF", 4) != 0) {
    const std::string_view start(reinterpret_cast<const char*>(in.here()), std::min<uint64_t>(in.size(), 4));
    fail(ErrorCode::corrupt, "{}: offset 0: the file starts with '{}', and a GGUF model with 'GGUF'",
         in.path(), printable(start));
  }
  in.take(4, "the magic");
  const auto version = in.number<uint32_t>("the version");
  if (version != 0 && (version & 0xffff) == 0) {
    fail(ErrorCode::unsupported,
         "{}: offset 4: a big-endian GGUF file, and only little-endian ones are read; convert it with "
         "gguf-convert-endian",
         in.path());
  }
  if (version != 2 && version != 3) {
    fail(ErrorCode::unsupported, "{}: offset 4: GGUF version {}, and versions 2 and 3 are read", in.path(),
         version);
  }
  return version;
}

void read_metadata(Cursor& in, uint64_t n_entries, std::map<std::string, GgufValue>& metadata) {
  for (uint64_t i = 0; i < n_entries; ++i) {
    const uint64_t at = in.position();
    const std::string key(in.text(fmt::format("the key of metadata entry {}", i)));
    if (key.empty())
      fail(ErrorCode::corrupt, "{}: offset {}: metadata entry {} has an empty key", in.path(), at, i);
    const std::string what = fmt::format("metadata '{}'", printable(key));
    const uint32_t type = value_type(in, what);
    if (!metadata.emplace(key, read_value(in, type, what)).second) {
      fail(ErrorCode::corrupt, "{}: offset {}: {} appears twice", in.path(), at, what);
    }
  }
}

uint64_t alignment_of(const GgufPart& part) {
  const auto found = part.metadata.find("general.alignment");
  if (found == part.metadata.end()) return kDefaultAlignment;
  const uint64_t alignment = gguf_as_u64(part.file.path(), found->first, found->second);
  if (alignment < kLeastAlignment || (alignment & (alignment - 1)) != 0) {
    fail(ErrorCode::corrupt, "{}: general.alignment is {}, and must be a power of two of {} or more",
         part.file.path(), alignment, kLeastAlignment);
  }
  return alignment;
}

// A tensor's shape from the cursor, and the bytes that it takes.
void read_shape(Cursor& in, const std::string& what, GgufTensor& tensor) {
  const uint64_t at = in.position();
  const auto n_dims = in.number<uint32_t>(what);
  if (n_dims < 1 || n_dims > 4) {
    fail(ErrorCode::corrupt, "{}: offset {}: {} has {} dimensions, and 1 to 4 are possible", in.path(), at,
         what, n_dims);
  }
  uint64_t n_elements = 1;
  for (uint32_t d = 0; d < n_dims; ++d) {
    const auto ne = in.number<uint64_t>(what);
    if (ne == 0) fail(ErrorCode::corrupt, "{}: offset {}: {} has a dimension of 0", in.path(), at, what);
    if (__builtin_mul_overflow(n_elements, ne, &n_elements) || n_elements > INT64_MAX) {
      fail(ErrorCode::corrupt, "{}: offset {}: {} has 2^63 elements or more", in.path(), at, what);
    }
    tensor.ne.push_back(ne);
  }
  const uint64_t type_at = in.position();
  const auto type_id = in.number<uint32_t>(what);
  const WeightTypeInfo* info = find_weight_type(type_id);
  if (info == nullptr) {
    fail(ErrorCode::unsupported,
         "{}: offset {}: {} has type id {}, which is none that is known (removed, or too new)", in.path(),
         type_at, what, type_id);
  }
  if (tensor.ne[0] % info->block_size != 0) {
    fail(ErrorCode::corrupt, "{}: offset {}: {} has rows of {} weights, and {} needs a multiple of {}",
         in.path(), at, what, tensor.ne[0], info->name, info->block_size);
  }
  tensor.type = info->type;
  if (__builtin_mul_overflow(n_elements / info->block_size, uint64_t{info->block_bytes}, &tensor.n_bytes)) {
    fail(ErrorCode::corrupt, "{}: offset {}: {} has 2^64 bytes or more", in.path(), at, what);
  }
}

struct Placed {
  uint64_t offset;  // from the start of the data section
  uint64_t at;      // where the file says so
};

Placed read_tensor(Cursor& in, uint64_t i, GgufTensor& tensor) {
  const uint64_t at = in.position();
  tensor.name = in.text(fmt::format("the name of tensor {}", i));
  if (tensor.name.empty()) fail(ErrorCode::corrupt, "{}: offset {}: tensor {} has no name", in.path(), at, i);
  const std::string what = fmt::format("tensor '{}'", printable(tensor.name));
  read_shape(in, what, tensor);
  const uint64_t offset_at = in.position();
  return {in.number<uint64_t>(what), offset_at};
}

// Turns offsets into pointers: inside the file, aligned, and no byte of two tensors.
void place_tensors(const Cursor& in, uint64_t alignment, const std::vector<Placed>& placed, GgufPart& part) {
  const uint64_t data_start = (in.position() + alignment - 1) / alignment * alignment;
  const uint64_t n_data = in.size() > data_start ? in.size() - data_start : 0;
  std::vector<size_t> order(placed.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return placed[a].offset < placed[b].offset; });
  uint64_t end = 0;
  for (size_t i : order) {
    GgufTensor& tensor = part.tensors[i];
    const auto [offset, at] = placed[i];
    const std::string name = printable(tensor.name);
    if (offset % alignment != 0) {
      fail(ErrorCode::corrupt,
           "{}: offset {}: tensor '{}' starts at {} of the data, which is no multiple of {}", in.path(), at,
           name, offset, alignment);
    }
    if (offset > n_data || tensor.n_bytes > n_data - offset) {
      fail(ErrorCode::corrupt,
           "{}: offset {}: tensor '{}' takes {} bytes at {} of the data, and the file has {}: it is cut or "
           "damaged",
           in.path(), at, name, tensor.n_bytes, offset, n_data);
    }
    if (offset < end)
      fail(ErrorCode::corrupt, "{}: offset {}: tensor '{}' overlaps another", in.path(), at, name);
    end = offset + tensor.n_bytes;
    tensor.data = part.file.bytes().data() + data_start + offset;
  }
}

void read_tensors(Cursor& in, uint64_t n_tensors, GgufPart& part) {
  const uint64_t alignment = alignment_of(part);
  std::vector<Placed> placed;
  std::set<std::string_view> names;
  part.tensors.reserve(n_tensors);
  placed.reserve(n_tensors);
  for (uint64_t i = 0; i < n_tensors; ++i) {
    const uint64_t at = in.position();
    placed.push_back(read_tensor(in, i, part.tensors.emplace_back()));
    if (!names.insert(part.tensors.back().name).second) {
      fail(ErrorCode::corrupt, "{}: offset {}: tensor '{}' appears twice", in.path(), at,
           printable(part.tensors.back().name));
    }
  }
  place_tensors(in, alignment, placed, part);
}

}  // namespace

std::vector<GgufValue> GgufArray::values() const {
  const std::string path = "GGUF array";
  Cursor in(path, {data, static_cast<size_t>(n_bytes)});
  std::vector<GgufValue> result;
  result.reserve(size);
  for (uint64_t i = 0; i < size; ++i) result.push_back(read_value(in, element_type, "an element"));
  return result;
}

std::string_view gguf_type_name(uint32_t value_type) {
  return value_type < n_value_types ? kTypeNames[value_type] : "unknown";
}

std::string gguf_kind(const GgufValue& value) {
  if (const auto* list = std::get_if<std::shared_ptr<GgufArray>>(&value)) {
    return fmt::format("an array of {}", gguf_type_name((*list)->element_type));
  }
  if (std::holds_alternative<int64_t>(value) && std::get<int64_t>(value) < 0) return "a negative integer";
  constexpr std::string_view kinds[] = {"an integer", "an integer", "a float", "a bool", "a string"};
  return std::string(kinds[value.index()]);
}

uint64_t gguf_as_u64(const std::string& path, std::string_view key, const GgufValue& value) {
  if (const auto* number = std::get_if<uint64_t>(&value)) return *number;
  const auto* number = std::get_if<int64_t>(&value);
  if (number == nullptr || *number < 0) {
    fail(ErrorCode::corrupt, "{}: metadata '{}' is {}, and must be an integer of 0 or more", path,
         printable(key), gguf_kind(value));
  }
  return static_cast<uint64_t>(*number);
}

GgufPart parse_gguf_part(const std::string& path) {
  GgufPart part(path);
  Cursor in(part.file.path(), part.file.bytes());
  part.version = read_version(in);
  const auto n_tensors = in.number<uint64_t>("the number of tensors");
  const auto n_entries = in.number<uint64_t>("the number of metadata entries");
  in.count(n_tensors, kLeastTensorBytes, "tensors");
  in.count(n_entries, kLeastEntryBytes, "metadata entries");
  read_metadata(in, n_entries, part.metadata);
  in.count(n_tensors, kLeastTensorBytes, "tensors");
  read_tensors(in, n_tensors, part);
  return part;
}

}  // namespace logitgate
