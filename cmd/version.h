// What --version prints, and the name that dumps carry.
// Contract: the commit is that of the source at build time; "unknown" where neither git nor an archive tells
// it.
#pragma once

#include <string>

namespace logitgate {

std::string tool_name();     // "logitgate 0.1.0": without a commit, so that equal results are equal bytes
std::string version_text();  // version, git commit, compiler, CUDA, SIMD level; several lines

}  // namespace logitgate
