// A CPU backend with the buffers and passes that op tests need.
// Contract: outputs are poisoned with NaN before an op writes them, so that an element left out shows.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backends.h"
#include "lib/backend.h"
#include "lib/error.h"

namespace logitgate::testing {

template <class T>
constexpr Precision kPrecision = sizeof(T) == sizeof(double) ? Precision::f64 : Precision::f32;
template <class T>
constexpr double kEpsilon = std::numeric_limits<T>::epsilon();

template <class T>
class BackendOps {
 public:
  explicit BackendOps(int threads = 2) {
    BackendOptions options;
    options.device = "cpu";
    options.precision = kPrecision<T>;
    options.threads = threads;
    backend_ = make_backend(options);
    use_cache({1, 1, 2});
  }

  Backend& operator*() { return *backend_; }
  Backend* operator->() { return backend_.get(); }
  KvCache& cache() { return *cache_; }
  void use_cache(const KvShape& shape) { cache_ = backend_->make_kv_cache(shape); }

  // A view that owns its memory until this object goes.
  Activation upload(const std::vector<T>& values, size_t n_rows) {
    buffers_.push_back(values);
    const auto n_cols = n_rows == 0 ? 0 : values.size() / n_rows;
    return {buffers_.back().data(), static_cast<int64_t>(n_rows), static_cast<int64_t>(n_cols)};
  }
  Activation poisoned(size_t n_rows, size_t n_cols) {
    return upload(std::vector<T>(n_rows * n_cols, std::numeric_limits<T>::quiet_NaN()), n_rows);
  }
  static std::vector<T> values(const Activation& x) {
    const T* p = static_cast<const T*>(x.data);
    return std::vector<T>(p, p + x.n_rows * x.n_cols);
  }

  // Prefill: one record of n tokens from position 0. Decode: n records at position 0.
  void begin(Phase phase, int32_t n_tokens, std::vector<int32_t> tokens = {}) {
    TokenBatch batch;
    batch.phase = phase;
    batch.tokens =
        tokens.empty() ? std::vector<int32_t>(static_cast<size_t>(n_tokens), 0) : std::move(tokens);
    if (phase == Phase::prefill) {
      cache_->reserve(0, n_tokens);
      batch.pieces.push_back({0, 0, n_tokens, 0});
    } else {
      for (int32_t t = 0; t < n_tokens; ++t) {
        cache_->reserve(t, 1);
        batch.pieces.push_back({t, t, 1, 0});
      }
    }
    backend_->begin(batch, *cache_);
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<KvCache> cache_;
  std::list<std::vector<T>> buffers_;
};

template <class T>
std::vector<double> widen(const std::vector<T>& x) {
  return std::vector<double>(x.begin(), x.end());
}

// |got - want| <= bound element by element; a NaN fails.
template <class T>
void expect_near(const std::vector<T>& got, const std::vector<double>& want, const std::vector<double>& bound,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!(std::fabs(static_cast<double>(got[i]) - want[i]) <= bound[i])) {
      ADD_FAILURE() << what << ": element " << i << " is " << got[i] << ", not " << want[i] << " ± "
                    << bound[i];
      return;
    }
  }
}

}  // namespace logitgate::testing
