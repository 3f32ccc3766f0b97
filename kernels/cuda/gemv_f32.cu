// The GEMV kernels of --precision f32.
// Contract: kernels/cuda/gemv.cuh.
#include "kernels/cuda/gemv.cuh"

namespace logitgate::cuda {

void gemv_f32(const GemvArgs& args, cudaStream_t stream) { gemv<float, Rounding::none>(args, stream); }

}  // namespace logitgate::cuda
