// Memory of the CPU backend: page-backed buffers, scratch that grows, and how much the machine can spare.
// Contract: allocations are aligned to 64 bytes; a large one is mapped for itself, so that freeing it gives its pages back
// to the system. Errors: Error{resource} naming the bytes asked for.
#pragma once

#include <cstddef>
#include <vector>

#include "lib/backend.h"

namespace logitgate {

// Huge pages spare address translation where all of a buffer is used; small ones take no more memory than is touched.
enum class Pages { small, huge };

Buffer allocate_host(size_t n_bytes, Pages pages = Pages::huge);

// Bytes that may be taken without swapping: /proc/meminfo's MemAvailable, or what the cgroups leave where that is less.
size_t available_memory();

// Memory that a kernel reuses from call to call; one an operand, or one a thread.
class Scratch {
 public:
  // At least n elements, contents undefined; pointers from earlier calls are void.
  template <class T>
  T* get(size_t n) {
    return static_cast<T*>(bytes(n, sizeof(T)));
  }

 private:
  void* bytes(size_t n, size_t element_size);
  Buffer buffer_;
};

}  // namespace logitgate
