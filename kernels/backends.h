// Makes the backend that --device and --precision ask for. Only cmd and tests include this header.
// Contract: `device` is "auto", "cpu", "cuda" or "cuda:N"; what this build or machine does not have gives Error{unsupported}
// that says so and what would do.
#pragma once

#include <memory>
#include <string>

#include "lib/backend.h"

namespace logitgate {

struct BackendOptions {
  std::string device = "auto";
  Precision precision = Precision::f32;
  int threads = 0;  // CPU threads; 0: all
};
std::unique_ptr<Backend> make_backend(const BackendOptions& options);

// The SIMD level that the CPU backend runs at: "AVX3", "AVX2", …; LOGITGATE_SIMD=avx2 forces a lower one.
std::string simd_level();

}  // namespace logitgate
