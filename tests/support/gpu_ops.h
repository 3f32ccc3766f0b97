// A CUDA backend with the buffers and passes that op tests need, and the loud skip where there is no GPU.
// Contract: activations are given and read as double; outputs are poisoned with NaN before an op writes them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backends.h"
#include "kernels/cuda_module.h"
#include "lib/backend.h"
#include "lib/error.h"
#include "tests/support/random_values.h"

namespace logitgate::testing {

// Why there is no usable GPU; empty where there is one.
inline std::string no_gpu() {
  std::string why;
  for (const CudaDevice& device : list_cuda_devices(why)) {
    if (device.usable) return "";
    why = device.why_not;
  }
  return why.empty() ? "no GPU" : why;
}

#define LOGITGATE_NEEDS_GPU()                                                 \
  if (const std::string why = ::logitgate::testing::no_gpu(); !why.empty()) { \
    GTEST_SKIP() << "NOT TESTED, no usable GPU: " << why;                     \
  }

// True in one call of n where LOGITGATE_GPU_QUICK is set (under compute-sanitizer, which is slow), else
// always.
inline bool take_one_of(int n) {
  static const bool quick = std::getenv("LOGITGATE_GPU_QUICK") != nullptr;
  static int calls = 0;
  return !quick || calls++ % n == 0;
}

inline constexpr Precision kGpuPrecisions[] = {Precision::f64, Precision::f32, Precision::tf32,
                                               Precision::bf16};

inline const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::f64:
      return "f64";
    case Precision::f32:
      return "f32";
    case Precision::tf32:
      return "tf32";
    case Precision::bf16:
      return "bf16";
    default:
      return "f32x3";
  }
}

// The epsilon of activations, and what rounding (or, in tf32, cutting) an operand of a matrix product may
// lose.
inline double storage_epsilon(Precision p) {
  return p == Precision::f64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}
inline double operand_epsilon(Precision p) {
  return p == Precision::tf32 ? std::ldexp(1.0, -10) : p == Precision::bf16 ? std::ldexp(1.0, -8) : 0;
}

class GpuOps {
 public:
  explicit GpuOps(Precision precision) {
    BackendOptions options;
    options.device = "cuda";
    options.precision = precision;
    backend_ = make_backend(options);
    use_cache({1, 1, 2});
  }
  Backend& operator*() { return *backend_; }
  Backend* operator->() { return backend_.get(); }
  KvCache& cache() { return *cache_; }
  void use_cache(const KvShape& shape) { cache_ = backend_->make_kv_cache(shape); }

  Activation upload(const std::vector<double>& values, size_t n_rows) {
    buffers_.push_back(backend_->allocate(values.size() * backend_->element_size()));
    const Activation x{buffers_.back().data(), static_cast<int64_t>(n_rows),
                       n_rows == 0 ? 0 : static_cast<int64_t>(values.size() / n_rows)};
    backend_->write(x, values);
    return x;
  }
  Activation poisoned(size_t n_rows, size_t n_cols) {
    return upload(std::vector<double>(n_rows * n_cols, std::numeric_limits<double>::quiet_NaN()), n_rows);
  }
  std::vector<double> values(const Activation& x) { return backend_->read(x); }
  void drop() { buffers_.clear(); }
  // A tensor's bytes must live as long as the backend that loaded them.
  const RandomTensor& keep(RandomTensor tensor) {
    tensors_.push_back(std::move(tensor));
    return tensors_.back();
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
  std::list<Buffer> buffers_;
  std::list<RandomTensor> tensors_;
};

// |got − want| <= bound element by element; a NaN fails.
inline void expect_close(const std::vector<double>& got, const std::vector<double>& want,
                         const std::vector<double>& bound, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!(std::fabs(got[i] - want[i]) <= bound[i])) {
      ADD_FAILURE() << what << ": element " << i << " is " << got[i] << ", not " << want[i] << " ± "
                    << bound[i];
      return;
    }
  }
}

}  // namespace logitgate::testing
