// Runs a command and says how much memory it had at its peak.
// Contract: `peak_memory FILE COMMAND ARG…` writes the peak resident set of the command in KiB to FILE and exits as the command
// did (128 + n for a signal).
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>

extern char** environ;

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: peak_memory FILE COMMAND ARG...\n");
    return 2;
  }
  pid_t child = 0;
  if (const int error = posix_spawnp(&child, argv[2], nullptr, nullptr, argv + 2, environ); error != 0) {
    std::fprintf(stderr, "peak_memory: %s: %s\n", argv[2], std::strerror(error));
    return 2;
  }
  int status = 0;
  rusage usage{};
  if (wait4(child, &status, 0, &usage) != child) return 2;
  std::FILE* file = std::fopen(argv[1], "w");
  if (file == nullptr || std::fprintf(file, "%ld\n", usage.ru_maxrss) < 0 || std::fclose(file) != 0) return 2;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
