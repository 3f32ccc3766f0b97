// Implements safetensors.h.
// Contract: as there; the header is padded with blanks to a multiple of 8 bytes.
#include "formats/safetensors.h"

#include <nlohmann/json.hpp>
#include <set>

#include "formats/float_stream.h"
#include "formats/text.h"
#include "lib/error.h"

namespace logitgate {
namespace {

constexpr size_t kMaxHeaderBytes = 100'000'000;  // more is refused by the format's readers

uint64_t count_values(const std::string& file, const SafetensorsEntry& entry) {
  uint64_t n = 1;
  uint64_t n_bytes = 0;
  for (const uint64_t dimension : entry.shape) {
    if (__builtin_mul_overflow(n, dimension, &n)) n = UINT64_MAX;
  }
  if (__builtin_mul_overflow(n, uint64_t{entry.is_f64 ? 8u : 4u}, &n_bytes)) {
    fail(ErrorCode::unsupported, "{}: tensor '{}' has 2^64 bytes or more", file, printable(entry.name));
  }
  return n;
}

void check_name(const std::string& file, const std::string& name, std::set<std::string>& names) {
  if (name == "__metadata__" || !is_utf8(name)) {
    fail(ErrorCode::unsupported, "{}: '{}' cannot be a tensor's name in a safetensors file", file,
         printable(name));
  }
  if (!names.insert(name).second)
    fail(ErrorCode::corrupt, "{}: two tensors are named '{}'", file, printable(name));
}

}  // namespace

struct SafetensorsWriter::Impl {
  Impl(const std::string& path, const std::vector<SafetensorsEntry>& list,
       const std::map<std::string, std::string>& metadata, const OutputOptions& options)
      : out(path, options), entries(list) {
    for (const SafetensorsEntry& entry : entries) n_values.push_back(count_values(out.name(), entry));
    const std::string header = make_header(metadata);
    const uint64_t length = header.size();
    out.write(&length, sizeof(length));
    out.write(header);
  }

  std::string make_header(const std::map<std::string, std::string>& metadata) const {
    nlohmann::ordered_json header = nlohmann::ordered_json::object();
    if (!metadata.empty()) header["__metadata__"] = metadata;
    std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    text.pop_back();
    std::set<std::string> names;
    uint64_t begin = 0;
    for (size_t i = 0; i < entries.size(); ++i) {
      const SafetensorsEntry& entry = entries[i];
      check_name(out.name(), entry.name, names);
      uint64_t end = 0;
      if (__builtin_add_overflow(begin, n_values[i] * (entry.is_f64 ? 8 : 4), &end)) {
        fail(ErrorCode::unsupported, "{}: the tensors have 2^64 bytes or more", out.name());
      }
      nlohmann::ordered_json fields;
      fields["dtype"] = entry.is_f64 ? "F64" : "F32";
      fields["shape"] = entry.shape;
      fields["data_offsets"] = {begin, end};
      if (text.size() > 1) text += ',';
      text += nlohmann::ordered_json(entry.name).dump() + ':' + fields.dump();
      begin = end;
    }
    text += '}';
    text.resize((text.size() + 7) / 8 * 8, ' ');
    if (text.size() > kMaxHeaderBytes) {
      fail(ErrorCode::unsupported,
           "{}: the {} tensors need a header of {} bytes, and {} are possible; export fewer", out.name(),
           entries.size(), text.size(), kMaxHeaderBytes);
    }
    return text;
  }

  // Steps over tensors that are complete, those without any value included.
  void skip_complete() {
    while (current < entries.size() && n_written == n_values[current]) {
      ++current;
      n_written = 0;
    }
  }

  template <class T>
  void write(std::span<const T> values) {
    if (values.empty()) return;
    skip_complete();
    if (current == entries.size() || values.size() > n_values[current] - n_written) {
      fail(ErrorCode::corrupt, "{}: {} values more than the tensors of the header hold", out.name(),
           values.size());
    }
    write_floats(out, entries[current].is_f64, values);
    n_written += values.size();
  }

  OutputFile out;
  std::vector<SafetensorsEntry> entries;
  std::vector<uint64_t> n_values;  // of each entry
  size_t current = 0;
  uint64_t n_written = 0;  // of the current entry
};

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                                     const std::map<std::string, std::string>& metadata,
                                     const OutputOptions& options)
    : impl_(std::make_unique<Impl>(path, entries, metadata, options)) {}
SafetensorsWriter::~SafetensorsWriter() = default;
void SafetensorsWriter::write(std::span<const float> values) { impl_->write(values); }
void SafetensorsWriter::write(std::span<const double> values) { impl_->write(values); }

void SafetensorsWriter::commit() {
  impl_->skip_complete();
  if (impl_->current != impl_->entries.size()) {
    const SafetensorsEntry& entry = impl_->entries[impl_->current];
    fail(ErrorCode::corrupt, "{}: tensor '{}' has {} values of {}", impl_->out.name(), printable(entry.name),
         impl_->n_written, impl_->n_values[impl_->current]);
  }
  impl_->out.commit();
}

}  // namespace logitgate
