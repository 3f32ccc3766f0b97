// Every CUDA status turned into an Error.
// Contract: check() throws Error{resource} with one line that names the device, the call and what would help;
// check_launch() belongs after every kernel launch.
#pragma once

#include <cuda_runtime.h>

namespace logitgate::cuda {

void check(cudaError_t status, const char* call);
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

#define LOGITGATE_CUDA(call) ::logitgate::cuda::check((call), #call)

}  // namespace logitgate::cuda
