// A model as its file describes it, read from GGUF.
// Contract: in model_file.h.
#include "lib/model_file.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "lib/error.h"

namespace logitgate {

ModelFile ModelFile::open(const std::string& path) { return ModelFile(GgufFile::open(path)); }

ModelFile::ModelFile(GgufFile gguf) : gguf_(std::move(gguf)) {
  const std::optional<std::string> architecture = gguf_.get_string("general.architecture");
  if (!architecture || architecture->empty())
    fail(ErrorCode::corrupt, "{}: metadata: general.architecture is missing: not a model", path());
  architecture_ = *architecture;
  name_ = gguf_.get_string("general.name").value_or("");
  for (const GgufTensor& source : gguf_.tensors()) {
    Tensor tensor;
    tensor.name = source.name;
    tensor.type = source.type;
    for (size_t d = 0; d < source.ne.size(); ++d) tensor.ne[d] = static_cast<int64_t>(source.ne[d]);
    tensor.data = source.data;
    tensor.n_bytes = source.n_bytes;
    tensors_.push_back(std::move(tensor));
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
}

const Tensor* ModelFile::find(std::string_view tensor_name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), tensor_name,
                                   [](const Tensor& t, std::string_view name) { return t.name < name; });
  return at != tensors_.end() && at->name == tensor_name ? &*at : nullptr;
}

std::optional<uint64_t> ModelFile::get_u64(std::string_view key) const {
  return gguf_.get_u64(fmt::format("{}.{}", architecture_, key));
}
std::optional<double> ModelFile::get_f64(std::string_view key) const {
  return gguf_.get_f64(fmt::format("{}.{}", architecture_, key));
}
std::optional<std::string> ModelFile::get_string(std::string_view key) const {
  return gguf_.get_string(fmt::format("{}.{}", architecture_, key));
}

uint64_t ModelFile::require_u64(std::string_view key, uint64_t low, uint64_t high) const {
  const std::optional<uint64_t> value = get_u64(key);
  if (!value) fail(ErrorCode::corrupt, "{}: metadata: {}.{} is missing", path(), architecture_, key);
  if (*value < low || *value > high)
    fail(ErrorCode::corrupt, "{}: metadata: {}.{} is {}, must be from {} to {}", path(), architecture_, key,
         *value, low, high);
  return *value;
}

double ModelFile::require_f64(std::string_view key) const {
  const std::optional<double> value = get_f64(key);
  if (!value) fail(ErrorCode::corrupt, "{}: metadata: {}.{} is missing", path(), architecture_, key);
  return *value;
}

std::vector<std::string> ModelFile::architecture_keys() const {
  const std::string prefix = architecture_ + ".";
  std::vector<std::string> keys;
  for (const auto& [key, value] : gguf_.metadata())
    if (key.starts_with(prefix)) keys.push_back(key.substr(prefix.size()));
  return keys;
}

namespace {

// Metadata in a form whose bytes do not depend on how wide the file's integers are.
void append_value(std::string& text, const GgufValue& value) {
  struct Append {
    std::string& text;
    void operator()(uint64_t v) const { text += fmt::format("i{};", v); }
    void operator()(int64_t v) const { text += fmt::format("i{};", v); }
    void operator()(double v) const { text += fmt::format("f{};", v); }
    void operator()(bool v) const { text += v ? "b1;" : "b0;"; }
    void operator()(const std::string& v) const { text += fmt::format("s{}:{};", v.size(), v); }
    void operator()(const std::shared_ptr<GgufArray>& v) const {
      text += fmt::format("a{}:", v->size);
      for (const GgufValue& element : v->values()) append_value(text, element);
    }
  };
  std::visit(Append{text}, value);
}

std::string hex(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  std::string text;
  for (unsigned char byte : bytes.digest) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace

std::string weights_digest(const ModelFile& file, int threads) {
  const std::vector<Tensor>& tensors = file.tensors();
  std::vector<std::string> hashes(tensors.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < tensors.size();)
      hashes[i] = hex(XXH3_128bits(tensors[i].data, tensors[i].n_bytes));
  };
  std::vector<std::jthread> workers;
  const unsigned n = threads > 0 ? static_cast<unsigned>(threads) : std::thread::hardware_concurrency();
  for (unsigned t = 1; t < n && t < tensors.size(); ++t) workers.emplace_back(work);
  work();
  workers.clear();

  std::string list = fmt::format("general.architecture={}\n", file.architecture());
  for (const std::string& key : file.architecture_keys()) {
    list += fmt::format("{}=", key);
    append_value(list, *file.gguf().value(fmt::format("{}.{}", file.architecture(), key)));
    list += '\n';
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    list += fmt::format("{}:{} {} {},{},{},{} {}\n", t.name.size(), t.name, weight_type_info(t.type).name,
                        t.ne[0], t.ne[1], t.ne[2], t.ne[3], hashes[i]);
  }
  return hex(XXH3_128bits(list.data(), list.size()));
}

std::string weights_types(const ModelFile& file) {
  std::map<std::string_view, size_t> bytes;
  for (const Tensor& t : file.tensors())
    if (t.n_out() > 1) bytes[weight_type_info(t.type).name] += t.n_bytes;
  std::vector<std::pair<size_t, std::string_view>> order;
  for (const auto& [name, n] : bytes) order.emplace_back(n, name);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::string text;
  for (const auto& [n, name] : order) {
    if (!text.empty()) text += ',';
    text += name;
  }
  return text;
}

}  // namespace logitgate
