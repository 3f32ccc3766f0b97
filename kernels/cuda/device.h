// The GPUs of this machine as the CUDA runtime sees them.
// Contract: select_device() makes one current or throws Error{unsupported} with one line that says why it
// cannot be used and what would do.
#pragma once

#include <string>
#include <vector>

namespace logitgate::cuda {

struct DeviceInfo {
  int index = 0;
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  size_t total_bytes = 0;
  size_t free_bytes = 0;
  int n_multiprocessors = 0;
  bool usable = false;
  std::string why_not;  // empty where usable
};

// Every visible GPU; empty with `why` set where there is no driver, one too old, or none at all.
std::vector<DeviceInfo> list_devices(std::string& why);

// Makes device `index` current (-1: the first usable one) and returns what it is.
DeviceInfo select_device(int index);

}  // namespace logitgate::cuda
