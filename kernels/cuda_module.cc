// Finds and loads the CUDA module.
// Contract: kernels/cuda_module.h.
#include "kernels/cuda_module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "lib/error.h"

namespace logitgate {
namespace {

constexpr const char* kModuleName = "liblogitgate_cuda.so";

struct Module {
  std::string why;  // why there is none; empty where there is
  void (*list)(std::vector<CudaDevice>*, std::string*) = nullptr;
  Backend* (*make)(int, Precision) = nullptr;
};

std::vector<std::string> candidates() {
  if (const char* named = getenv("LOGITGATE_CUDA_MODULE"); named != nullptr && *named != '\0') return {named};
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {kModuleName};
  std::vector<std::string> paths;
  for (const char* folder : {"", "../lib/logitgate", "../lib", "lib", "../kernels"}) {
    paths.push_back((program.parent_path() / folder / kModuleName).string());
  }
  return paths;
}

// Removes the variables that change the arithmetic of NVIDIA's libraries, which read them when they load or
// make a handle.
void neutralise_environment() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; entry++) {
    const char* end = std::strchr(*entry, '=');
    if (end == nullptr) continue;
    const std::string name(*entry, static_cast<size_t>(end - *entry));
    if (name == "NVIDIA_TF32_OVERRIDE" || name.starts_with("CUBLAS_") || name.starts_with("CUBLASLT_"))
      names.push_back(name);
  }
  for (const std::string& name : names) unsetenv(name.c_str());
}

template <class F>
bool find(void* handle, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(handle, name));
  return function != nullptr;
}

Module load_module() {
  Module module;
  const std::vector<std::string> paths = candidates();
  for (const std::string& path : paths) {
    if (access(path.c_str(), F_OK) != 0) continue;
    neutralise_environment();
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* const text = dlerror();
      module.why = fmt::format(
          "the CUDA module does not load: {}; the toolkit's libraries (libcublasLt) must be where the loader "
          "finds them",
          text != nullptr ? text : path.c_str());
      return module;
    }
    const char* (*version)() = nullptr;
    if (!find(handle, "logitgate_cuda_version", version) ||
        std::string(version()) != LOGITGATE_MODULE_VERSION ||
        !find(handle, "logitgate_cuda_list", module.list) ||
        !find(handle, "logitgate_cuda_make", module.make)) {
      module.why = fmt::format("{} belongs to another build of logitgate; install both from one build", path);
    }
    return module;
  }
  module.why = fmt::format(
      "{} is not beside the program: this is a CPU-only build; build where a CUDA toolkit is found",
      kModuleName);
  return module;
}

const Module& module() {
  static const Module loaded = load_module();
  return loaded;
}

}  // namespace

std::vector<CudaDevice> list_cuda_devices(std::string& why) {
  std::vector<CudaDevice> devices;
  if (module().why.empty()) {
    module().list(&devices, &why);
  } else {
    why = module().why;
  }
  return devices;
}

std::unique_ptr<Backend> make_cuda_backend(int device, Precision precision) {
  if (!module().why.empty())
    fail(ErrorCode::unsupported, "--device cuda: {}, or use --device cpu", module().why);
  return std::unique_ptr<Backend>(module().make(device, precision));
}

}  // namespace logitgate
