// Matrix products through cuBLASLt, one algorithm pinned for each weight shape.
// Contract: y[t, o] = Σ_i w[o, i] · x[t, i] for operands already in the precision's operand type. The
// algorithm for (n_out, n_in) is the heuristic's first choice at a fixed nominal number of tokens, without
// split-K and without a reduction scheme, within a fixed workspace: it depends on the shape, the precision,
// the library and the kind of GPU alone, never on the number of tokens, on free memory or on the process.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/status.h"

namespace logitgate::cuda {

class GemmPlans {
 public:
  explicit GemmPlans(Precision precision);
  ~GemmPlans();
  GemmPlans(const GemmPlans&) = delete;
  GemmPlans& operator=(const GemmPlans&) = delete;

  // Pins the algorithm for weights [n_out, n_in], if it is not yet.
  void pin(int64_t n_out, int64_t n_in);
  // y [n_tokens, ld_y] from w [n_out, n_in] and x [n_tokens, n_in]; ld_y >= n_out lets several products fill
  // one row.
  void run(void* y, int64_t ld_y, const void* w, int64_t n_out, const void* x, int64_t n_in, int64_t n_tokens,
           cudaStream_t stream);
  // One line a pinned shape, sorted.
  std::vector<std::string> describe() const;
  size_t operand_size() const { return operand_size_; }

 private:
  struct Plan {
    cublasLtMatmulAlgo_t algorithm;
    std::string text;
  };
  Plan choose(int64_t n_out, int64_t n_in, int64_t ld_y);
  const Plan& plan(int64_t n_out, int64_t n_in, int64_t ld_y);

  Precision precision_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cudaDataType_t operand_type_ = CUDA_R_32F;
  cudaDataType_t result_type_ = CUDA_R_32F;
  size_t operand_size_ = 4;
  Buffer workspace_;
  std::map<std::pair<int64_t, int64_t>, Plan> plans_;  // (n_out, n_in)
};

}  // namespace logitgate::cuda
