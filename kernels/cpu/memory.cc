// Host memory by mmap, and the limits of machine and cgroups.
// Contract: see memory.h.
#include "kernels/cpu/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

#include "lib/error.h"

namespace logitgate {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kMapped = size_t{1} << 18;  // from here on an allocation gets pages of its own

void release_heap(void* data, size_t) { std::free(data); }
void release_mapping(void* data, size_t n_bytes) { munmap(data, n_bytes); }

[[noreturn]] void fail_allocation(size_t n_bytes) {
  fail(ErrorCode::resource, "memory: {} bytes cannot be allocated; use fewer --batch-tokens or --lanes",
       n_bytes);
}

// n_bytes of fresh zero pages at a multiple of `alignment`.
std::byte* map_pages(size_t n_bytes, size_t alignment) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t length = (n_bytes + page - 1) / page * page;
  const size_t spare = alignment > page ? alignment : 0;
  if (length < n_bytes || length + spare < length) fail_allocation(n_bytes);
  void* mapped = mmap(nullptr, length + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) fail_allocation(n_bytes);
  auto* base = static_cast<std::byte*>(mapped);
  if (spare == 0) return base;
  const size_t past = reinterpret_cast<uintptr_t>(base) % alignment;
  const size_t before = past == 0 ? 0 : alignment - past;
  if (before > 0) munmap(base, before);
  if (spare > before) munmap(base + before + length, spare - before);
  return base + before;
}

// The number in a file such as memory.max, if it has one ("max" is none).
std::optional<size_t> number_in(const std::string& path) {
  std::ifstream file(path);
  size_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

std::optional<size_t> left_in_cgroup(const std::string& limit_file, const std::string& usage_file) {
  const std::optional<size_t> limit = number_in(limit_file);
  const std::optional<size_t> usage = number_in(usage_file);
  if (!limit || !usage) return std::nullopt;
  return *limit > *usage ? *limit - *usage : 0;
}

// What the cgroup at `path` and those above it leave, under the mount point and with the file names of its version.
size_t left_in_cgroups(const std::string& mount, std::string path, const char* limit, const char* usage) {
  size_t least = std::numeric_limits<size_t>::max();
  for (;;) {
    const std::string folder = mount + path + "/";
    if (const auto left = left_in_cgroup(folder + limit, folder + usage)) least = std::min(least, *left);
    const size_t slash = path.find_last_of('/');
    if (path.empty() || slash == std::string::npos) return least;
    path.resize(slash);
  }
}

size_t left_by_cgroups() {
  size_t least = std::numeric_limits<size_t>::max();
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (path == "/") path.clear();
    if (controllers.empty()) {
      least = std::min(least, left_in_cgroups("/sys/fs/cgroup", path, "memory.max", "memory.current"));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      least = std::min(least, left_in_cgroups("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                                              "memory.usage_in_bytes"));
    }
  }
  return least;
}

size_t mem_available() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("MemAvailable:", 0) == 0) {
      return static_cast<size_t>(std::strtoull(line.c_str() + 13, nullptr, 10)) * 1024;
    }
  }
  const long pages = sysconf(_SC_AVPHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(page) : 0;
}

}  // namespace

Buffer allocate_host(size_t n_bytes, Pages pages) {
  if (n_bytes == 0) return {};
  if (n_bytes < kMapped) {
    const size_t rounded = (n_bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* data = std::aligned_alloc(kAlignment, rounded);
    if (data == nullptr) fail_allocation(n_bytes);
    return {data, n_bytes, release_heap};
  }
  const bool huge = pages == Pages::huge && n_bytes >= 2 * kHugePage;
  std::byte* data = map_pages(n_bytes, huge ? kHugePage : 1);
  if (huge) madvise(data, n_bytes, MADV_HUGEPAGE);  // a wish: a kernel without them changes nothing
  return {data, n_bytes, release_mapping};
}

size_t available_memory() { return std::min(mem_available(), left_by_cgroups()); }

void* Scratch::bytes(size_t n, size_t element_size) {
  size_t n_bytes = 0;
  if (__builtin_mul_overflow(n, element_size, &n_bytes)) fail_allocation(std::numeric_limits<size_t>::max());
  if (n_bytes > buffer_.n_bytes()) {
    buffer_ = Buffer();
    buffer_ = allocate_host(n_bytes);
  }
  return buffer_.data();
}

}  // namespace logitgate
