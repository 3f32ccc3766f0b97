// The table of model families, and the loader that hands them their weights.
// Contract: in architecture.h.
#include "lib/arch/architecture.h"

#include <algorithm>

#include "lib/error.h"

namespace logitgate {

std::unique_ptr<Architecture> make_qwen3(WeightLoader& loader);

namespace {

struct Family {
  std::string_view name;  // general.architecture
  std::unique_ptr<Architecture> (*make)(WeightLoader& loader);
};
constexpr Family kFamilies[] = {
    {"qwen3", make_qwen3},
};

const Family& find_family(const ModelFile& file) {
  std::string names;
  for (const Family& family : kFamilies) {
    if (family.name == file.architecture()) return family;
    names += names.empty() ? "" : ", ";
    names += family.name;
  }
  fail(ErrorCode::unsupported, "{}: metadata: general.architecture is \"{}\"; supported: {}", file.path(),
       file.architecture(), names);
}

}  // namespace

Weight WeightLoader::take(const std::string& name, int64_t n_in, int64_t n_out) {
  Weight weight = take_optional(name, n_in, n_out);
  if (!weight) fail(ErrorCode::corrupt, "{}: tensors: {} is missing", file_.path(), name);
  return weight;
}

Weight WeightLoader::take_optional(const std::string& name, int64_t n_in, int64_t n_out) {
  const Tensor* tensor = file_.find(name);
  if (tensor == nullptr) return {};
  taken_.insert(name);
  if (tensor->ne[0] != n_in || tensor->ne[1] != n_out || tensor->ne[2] != 1 || tensor->ne[3] != 1)
    fail(ErrorCode::corrupt, "{}: tensor {}: shape is [{}, {}, {}, {}], must be [{}, {}]", file_.path(), name,
         tensor->ne[0], tensor->ne[1], tensor->ne[2], tensor->ne[3], n_in, n_out);
  const WeightTypeInfo& info = weight_type_info(tensor->type);
  if (!info.computes)
    fail(ErrorCode::unsupported, "{}: tensor {}: weight type {} is not supported", file_.path(), name,
         info.name);
  return backend_.load(*tensor);
}

void WeightLoader::finish(std::initializer_list<std::string_view> known_keys) const {
  for (const std::string& key : file_.architecture_keys())
    if (std::find(known_keys.begin(), known_keys.end(), key) == known_keys.end())
      fail(ErrorCode::unsupported,
           "{}: metadata: {}.{} is not known for this family and might change its results", file_.path(),
           file_.architecture(), key);
  for (const Tensor& tensor : file_.tensors())
    if (!taken_.contains(tensor.name))
      fail(ErrorCode::unsupported, "{}: tensor {} is not known for family {} and might change its results",
           file_.path(), tensor.name, file_.architecture());
}

std::unique_ptr<Architecture> make_architecture(const ModelFile& file, Backend& backend) {
  WeightLoader loader(file, backend);
  return find_family(file).make(loader);
}

}  // namespace logitgate
