// What a model family is to the engine: its weights by name, and its forward pass over a Backend.
// Contract: a family is one file in this folder and one row in the table of architecture.cc. Metadata or tensors that
// a family does not know are an error, never ignored.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "lib/backend.h"
#include "lib/model_config.h"
#include "lib/model_file.h"

namespace logitgate {

// Hands a family its weights and checks that nothing in the file is left over.
class WeightLoader {
 public:
  WeightLoader(const ModelFile& file, Backend& backend) : file_(file), backend_(backend) {}
  const ModelFile& file() const { return file_; }
  Backend& backend() const { return backend_; }

  // The tensor of that name and shape [n_in, n_out] (n_out = 1: a vector), made resident. Error{corrupt} where it is missing
  // or has another shape, Error{unsupported} where its type is not computed.
  Weight take(const std::string& name, int64_t n_in, int64_t n_out);
  // The same, or an absent weight where the file has none.
  Weight take_optional(const std::string& name, int64_t n_in, int64_t n_out);
  // Error{unsupported} for a tensor that was not taken, or metadata whose key is not in `known_keys`.
  void finish(std::initializer_list<std::string_view> known_keys) const;

 private:
  const ModelFile& file_;
  Backend& backend_;
  std::set<std::string, std::less<>> taken_;
};

class Architecture {
 public:
  virtual ~Architecture() = default;
  const ModelConfig& config() const { return config_; }
  virtual KvShape kv_shape() const = 0;
  // Bytes of activations that one token of a batch takes.
  virtual size_t bytes_per_token() const = 0;
  // Makes room for batches of max_tokens tokens and positions below n_positions; called between passes.
  virtual void reserve(int32_t max_tokens, int32_t n_positions) = 0;
  // One pass: the batch's keys and values go to the cache, the logits of `rows` (token indices of the batch, rising)
  // to the sink.
  virtual void forward(const TokenBatch& batch, KvCache& cache, std::span<const int32_t> rows,
                       LogitSink& sink) = 0;

 protected:
  ModelConfig config_;
};

// Error{unsupported} where the file's family is not one of the table, naming those that are.
std::unique_ptr<Architecture> make_architecture(const ModelFile& file, Backend& backend);

}  // namespace logitgate
