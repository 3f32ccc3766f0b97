// The CUDA backend as a module that is loaded when it is asked for: the program itself needs no driver and no
// toolkit.
// Contract: the module liblogitgate_cuda.so lies beside the program, in ../lib/logitgate, ../lib or lib from
// there (LOGITGATE_CUDA_MODULE names another file). It stays loaded. Errors: Error{unsupported} with one line
// that says what is missing and what would do.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lib/backend.h"

namespace logitgate {

// A GPU as `inspect --devices` lists it.
struct CudaDevice {
  int index = 0;
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  size_t total_bytes = 0;
  size_t free_bytes = 0;
  bool usable = false;
  std::string why_not;  // empty where usable
};

// Every GPU of the machine; where there is none, `why` says the reason (no module, no driver, no GPU).
std::vector<CudaDevice> list_cuda_devices(std::string& why);

// The backend of GPU `device`, or of the first usable one where that is -1.
std::unique_ptr<Backend> make_cuda_backend(int device, Precision precision);

}  // namespace logitgate
