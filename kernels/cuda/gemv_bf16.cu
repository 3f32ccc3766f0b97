// The GEMV kernels of --precision bf16.
// Contract: kernels/cuda/gemv.cuh.
#include "kernels/cuda/gemv.cuh"

namespace logitgate::cuda {

void gemv_bf16(const GemvArgs& args, cudaStream_t stream) { gemv<float, Rounding::bf16>(args, stream); }

}  // namespace logitgate::cuda
