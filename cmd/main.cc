// The command line: picks the verb, runs it, and turns every exception into one line on stderr and exit
// code 2. Contract: 0 same, passed, done; 1 different, failed; 2 trouble, which includes an output that could
// not be written. The only catch of the program is here.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include "cmd/verbs.h"
#include "cmd/version.h"
#include "lib/error.h"

namespace logitgate {
namespace {

constexpr int kTrouble = 2;

struct VerbEntry {
  const char* name;
  const char* summary;
  Verb (*add)(CLI::App&);
};

constexpr VerbEntry kVerbs[] = {
    {"prefill", "Run token batches through a model as batched GEMMs and dump the logits", add_prefill},
    {"decode-prime", "Run token batches token by token over a KV cache and dump the logits",
     add_decode_prime},
    {"compare", "Measure how two dumps differ: exit 0 if every row is bit-identical, else 1", add_compare},
    {"gate", "Judge whether two dumps differ by rounding or by a defect: exit 0 or 1", add_gate},
    {"inspect", "Say what a model, dump or token batch is; --verify checks every byte", add_inspect},
    {"recover", "Make a finished dump of the records that are complete in a cut one", add_recover},
    {"export", "Write a dump's logits as .npy or .safetensors", add_export},
    {"import", "Make a dump of another engine's logits (.npy)", add_import},
};

constexpr const char* kFooter =
    "Example:\n"
    "  logitgate prefill      prompts.jsonl -m model.gguf -o prefill.zst\n"
    "  logitgate decode-prime prompts.jsonl -m model.gguf -o decode.zst\n"
    "  logitgate compare      decode.zst prefill.zst\n"
    "  logitgate gate         decode.zst prefill.zst\n"
    "\n"
    "Exit codes: 0 same, passed, done; 1 different, gate failed; 2 trouble.\n"
    "`logitgate COMMAND --help` has the options of a command and an example.";

// A descriptor 0, 1 or 2 that the caller closed would be given to the next file opened, and messages would
// land in it. Each gets /dev/null in the direction that makes its use fail.
void open_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) std::abort();
  }
}

// One line whatever the message quotes: control characters of file names and file contents are escaped.
void print_trouble(const std::string& message) {
  std::string line = "logitgate: ";
  for (const char c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      line += c;
    }
  }
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string verb_names() {
  std::string names;
  for (const VerbEntry& verb : kVerbs) names += (names.empty() ? "" : ", ") + std::string(verb.name);
  return names;
}

void check_command(int argc, char** argv) {
  if (argc < 2) fail(ErrorCode::usage, "no command; expected one of {}, or --help", verb_names());
  if (argv[1][0] == '-') return;
  for (const VerbEntry& verb : kVerbs) {
    if (std::strcmp(verb.name, argv[1]) == 0) return;
  }
  fail(ErrorCode::usage, "unknown command '{}'; expected one of {}", argv[1], verb_names());
}

// The exit code, unless output was lost: a full disk and a closed pipe show here at the latest.
int finish(int code) {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout.flush();
  const int first_errno = errno;
  if (std::fclose(stdout) == 0 && !failed) return code;
  const int error = first_errno != 0 ? first_errno : errno;
  print_trouble(
      fmt::format("stdout: write failed: {}", error != 0 ? std::strerror(error) : "earlier output was lost"));
  return kTrouble;
}

void declare_verbs(CLI::App& app, Verb& chosen) {
  for (const VerbEntry& entry : kVerbs) {
    if (entry.add == nullptr) continue;
    CLI::App* verb = app.add_subcommand(entry.name, entry.summary);
    verb->callback([&chosen, run = entry.add(*verb)] { chosen = run; });
  }
}

int run(CLI::App& app, int argc, char** argv) {
  check_command(argc, argv);
  Verb chosen;
  declare_verbs(app, chosen);
  app.parse(argc, argv);
  if (!chosen) fail(ErrorCode::usage, "no command; expected one of {}, or --help", verb_names());
  return chosen();
}

// CLI11 reports --help and --version as exceptions, like a command line that it refuses.
int finish_parse(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    const std::string text =
        error.get_name() == "CallForVersion" ? error.what() + std::string("\n") : app.help();
    std::fwrite(text.data(), 1, text.size(), stdout);
    return finish(0);
  }
  const std::vector<CLI::App*> verbs = app.get_subcommands();
  const std::string command = verbs.empty() ? "logitgate" : "logitgate " + verbs.front()->get_name();
  print_trouble(fmt::format("{}; see {} --help", error.what(), command));
  return kTrouble;
}

}  // namespace
}  // namespace logitgate

int main(int argc, char** argv) {
  using namespace logitgate;
  open_standard_descriptors();
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app("Compares what language models say: logits of two runs, and whether they differ by rounding.",
               "logitgate");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", version_text, "Version, git commit, compiler, CUDA, SIMD level");
  app.footer(kFooter);
  try {
    return finish(run(app, argc, argv));
  } catch (const CLI::ParseError& error) {
    return finish_parse(app, error);
  } catch (const Error& error) {
    print_trouble(error.message());
  } catch (const std::bad_alloc&) {
    print_trouble("out of memory");
  } catch (const std::exception& error) {
    print_trouble(fmt::format("unexpected: {}", error.what()));
  }
  return kTrouble;
}
