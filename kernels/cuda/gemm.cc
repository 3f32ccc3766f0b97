// The plan cache: cuBLASLt's descriptors, the choice of an algorithm, and the call.
// Contract: kernels/cuda/gemm.h. cuBLASLt is column-major, so the call computes yᵀ [n_out, T] = w x ᵀ with w
// given as its transpose [n_in, n_out]: "m" of the library is n_out, its "n" is the number of tokens, its "k"
// is n_in.
#include "kernels/cuda/gemm.h"

#include <algorithm>
#include <array>

#include "lib/error.h"

namespace logitgate::cuda {
namespace {

constexpr int64_t kNominalTokens = 2048;
constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int kCandidates = 64;

const char* precision_name(Precision precision) {
  switch (precision) {
    case Precision::f64:
      return "f64";
    case Precision::tf32:
      return "tf32";
    case Precision::bf16:
      return "bf16";
    default:
      return "f32";
  }
}

// cuBLASLt's matrix layout, destroyed with its owner.
struct Layout {
  cublasLtMatrixLayout_t handle = nullptr;
  Layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t ld) {
    LOGITGATE_CUDA(cublasLtMatrixLayoutCreate(&handle, type, static_cast<uint64_t>(rows),
                                              static_cast<uint64_t>(columns), ld));
  }
  ~Layout() { (void)cublasLtMatrixLayoutDestroy(handle); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
};

struct Preference {
  cublasLtMatmulPreference_t handle = nullptr;
  Preference() { LOGITGATE_CUDA(cublasLtMatmulPreferenceCreate(&handle)); }
  ~Preference() { (void)cublasLtMatmulPreferenceDestroy(handle); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    LOGITGATE_CUDA(cublasLtMatmulPreferenceSetAttribute(handle, attribute, &value, sizeof value));
  }
};

// The largest power of two, up to 256, that divides every row's start.
uint32_t row_alignment(int64_t ld, size_t element) {
  const uint64_t bytes = static_cast<uint64_t>(ld) * element;
  return static_cast<uint32_t>(std::min<uint64_t>(bytes & (~bytes + 1), 256));
}

template <class T>
T config_of(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  size_t written = 0;
  LOGITGATE_CUDA(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written));
  return value;
}

std::string describe_algorithm(const cublasLtMatmulAlgo_t& a) {
  return fmt::format("cublasLt {} algo {} tile {} stages {} swizzle {} custom {} inner {} cluster {}",
                     cublasLtGetVersion(), config_of<int32_t>(a, CUBLASLT_ALGO_CONFIG_ID),
                     config_of<uint32_t>(a, CUBLASLT_ALGO_CONFIG_TILE_ID),
                     config_of<uint32_t>(a, CUBLASLT_ALGO_CONFIG_STAGES_ID),
                     config_of<uint32_t>(a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
                     config_of<uint32_t>(a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
                     config_of<uint16_t>(a, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
                     config_of<uint16_t>(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
}

bool keeps_one_order(const cublasLtMatmulAlgo_t& a) {
  return config_of<int32_t>(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) <= 1 &&
         config_of<uint32_t>(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) == CUBLASLT_REDUCTION_SCHEME_NONE;
}

}  // namespace

GemmPlans::GemmPlans(Precision precision)
    : precision_(precision), workspace_(device_allocate(kWorkspaceBytes, "GEMM workspace")) {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F_PEDANTIC;
  cudaDataType_t scale = CUDA_R_32F;
  if (precision == Precision::f64) {
    compute = CUBLAS_COMPUTE_64F;
    scale = operand_type_ = result_type_ = CUDA_R_64F;
    operand_size_ = 8;
  } else if (precision == Precision::tf32) {
    compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  } else if (precision == Precision::bf16) {
    compute = CUBLAS_COMPUTE_32F;
    operand_type_ = CUDA_R_16BF;
    operand_size_ = 2;
  }
  LOGITGATE_CUDA(cublasLtCreate(&handle_));
  LOGITGATE_CUDA(cublasLtMatmulDescCreate(&operation_, compute, scale));
  const cublasOperation_t transpose = CUBLAS_OP_T;
  LOGITGATE_CUDA(
      cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose));
}

GemmPlans::~GemmPlans() {
  if (operation_ != nullptr) (void)cublasLtMatmulDescDestroy(operation_);
  if (handle_ != nullptr) (void)cublasLtDestroy(handle_);
}

GemmPlans::Plan GemmPlans::choose(int64_t n_out, int64_t n_in, int64_t ld_y) {
  const size_t result_size = result_type_ == CUDA_R_64F ? 8 : 4;
  Preference preference;
  preference.set<uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  preference.set<uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_NONE);
  const uint32_t operand_alignment = row_alignment(n_in, operand_size_);
  const uint32_t result_alignment =
      std::min(row_alignment(n_out, result_size), row_alignment(ld_y, result_size));
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, operand_alignment);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, operand_alignment);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, result_alignment);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, result_alignment);
  const Layout w(operand_type_, n_in, n_out, n_in);
  const Layout x(operand_type_, n_in, kNominalTokens, n_in);
  const Layout y(result_type_, n_out, kNominalTokens, ld_y);
  std::array<cublasLtMatmulHeuristicResult_t, kCandidates> candidates{};
  int n_found = 0;
  LOGITGATE_CUDA(cublasLtMatmulAlgoGetHeuristic(handle_, operation_, w.handle, x.handle, y.handle, y.handle,
                                                preference.handle, kCandidates, candidates.data(), &n_found));
  for (int i = 0; i < n_found; i++) {
    const cublasLtMatmulAlgo_t& algorithm = candidates[static_cast<size_t>(i)].algo;
    if (candidates[static_cast<size_t>(i)].state != CUBLAS_STATUS_SUCCESS || !keeps_one_order(algorithm))
      continue;
    bool fits = true;
    for (const int64_t n_tokens : {int64_t{1}, int64_t{3}, int64_t{100}, int64_t{4096}}) {
      const Layout xs(operand_type_, n_in, n_tokens, n_in);
      const Layout ys(result_type_, n_out, n_tokens, ld_y);
      cublasLtMatmulHeuristicResult_t result{};
      fits = fits && cublasLtMatmulAlgoCheck(handle_, operation_, w.handle, xs.handle, ys.handle, ys.handle,
                                             &algorithm, &result) == CUBLAS_STATUS_SUCCESS;
      fits = fits && result.workspaceSize <= kWorkspaceBytes;
    }
    if (!fits) continue;
    return {algorithm, fmt::format("gemm {} n={} k={}: {}", precision_name(precision_), n_out, n_in,
                                   describe_algorithm(algorithm))};
  }
  fail(ErrorCode::resource,
       "cuBLASLt {}: none of {} algorithms for {} weights [{}, {}] works without split-K for every number of "
       "tokens; use another "
       "--precision or --device cpu",
       cublasLtGetVersion(), n_found, precision_name(precision_), n_out, n_in);
}

const GemmPlans::Plan& GemmPlans::plan(int64_t n_out, int64_t n_in, int64_t ld_y) {
  const auto key = std::make_pair(n_out, n_in);
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second;
  return plans_.emplace(key, choose(n_out, n_in, ld_y)).first->second;
}

void GemmPlans::pin(int64_t n_out, int64_t n_in) { (void)plan(n_out, n_in, n_out); }

void GemmPlans::run(void* y, int64_t ld_y, const void* w, int64_t n_out, const void* x, int64_t n_in,
                    int64_t n_tokens, cudaStream_t stream) {
  if (n_tokens == 0) return;
  const Plan& pinned = plan(n_out, n_in, ld_y);
  const Layout w_layout(operand_type_, n_in, n_out, n_in);
  const Layout x_layout(operand_type_, n_in, n_tokens, n_in);
  const Layout y_layout(result_type_, n_out, n_tokens, ld_y);
  const float one_f = 1;
  const float zero_f = 0;
  const double one_d = 1;
  const double zero_d = 0;
  const bool wide = precision_ == Precision::f64;
  const void* const alpha = wide ? static_cast<const void*>(&one_d) : &one_f;
  const void* const beta = wide ? static_cast<const void*>(&zero_d) : &zero_f;
  LOGITGATE_CUDA(cublasLtMatmul(handle_, operation_, alpha, w, w_layout.handle, x, x_layout.handle, beta, y,
                                y_layout.handle, y, y_layout.handle, &pinned.algorithm, workspace_.data(),
                                kWorkspaceBytes, stream));
}

std::vector<std::string> GemmPlans::describe() const {
  std::vector<std::string> lines;
  for (const auto& [shape, plan] : plans_) lines.push_back(plan.text);
  return lines;
}

}  // namespace logitgate::cuda
