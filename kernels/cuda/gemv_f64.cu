// The GEMV kernels of --precision f64.
// Contract: kernels/cuda/gemv.cuh.
#include "kernels/cuda/gemv.cuh"

namespace logitgate::cuda {

void gemv_f64(const GemvArgs& args, cudaStream_t stream) { gemv<double, Rounding::none>(args, stream); }

}  // namespace logitgate::cuda
