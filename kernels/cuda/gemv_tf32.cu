// The GEMV kernels of --precision tf32.
// Contract: kernels/cuda/gemv.cuh.
#include "kernels/cuda/gemv.cuh"

namespace logitgate::cuda {

void gemv_tf32(const GemvArgs& args, cudaStream_t stream) { gemv<float, Rounding::tf32>(args, stream); }

}  // namespace logitgate::cuda
