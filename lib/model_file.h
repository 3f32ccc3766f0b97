// A model as its file describes it: metadata, tensors and the digest of what decides its results.
// Contract: bytes are views of the mapped file and live as long as the ModelFile; metadata is asked for without the
// `{arch}.` prefix. Errors: Error{corrupt} where the file is damaged or lacks what it must have.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "lib/tensor.h"

namespace logitgate {

class ModelFile {
 public:
  // path: a GGUF file or the first of a split set.
  static ModelFile open(const std::string& path);

  const std::string& path() const { return gguf_.path(); }
  const std::string& name() const { return name_; }                  // general.name, or empty
  const std::string& architecture() const { return architecture_; }  // general.architecture
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* find(std::string_view tensor_name) const;

  // Metadata `{arch}.key`: missing is empty, or an error where it is required; another type is an error.
  std::optional<uint64_t> get_u64(std::string_view key) const;
  std::optional<double> get_f64(std::string_view key) const;
  std::optional<std::string> get_string(std::string_view key) const;
  uint64_t require_u64(std::string_view key, uint64_t low, uint64_t high) const;
  double require_f64(std::string_view key) const;
  // All keys that start with `{arch}.`, without that prefix, sorted.
  std::vector<std::string> architecture_keys() const;

  const GgufFile& gguf() const { return gguf_; }

 private:
  explicit ModelFile(GgufFile gguf);
  GgufFile gguf_;
  std::string name_, architecture_;
  std::vector<Tensor> tensors_;  // sorted by name
};

// XXH3-128, as 32 hex digits, over the tensors sorted by name (name, type, shape, XXH3-128 of the bytes) and the
// metadata that changes results (general.architecture and every `{arch}.` key): a split set equals the single file.
std::string weights_digest(const ModelFile& file, int threads);
// Types of the matrices, most bytes first: "Q8_0", "Q4_K,Q6_K".
std::string weights_types(const ModelFile& file);

}  // namespace logitgate
