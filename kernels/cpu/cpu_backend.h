// Makes the CPU backend.
// Contract: precision f32 computes in float, f64 in double; any other gives Error{unsupported}. threads = 0 takes all.
#pragma once

#include <memory>

#include "lib/backend.h"

namespace logitgate {

std::unique_ptr<Backend> make_cpu_backend(Precision precision, int threads);

}  // namespace logitgate
