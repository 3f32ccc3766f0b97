// Where results go: a file that appears under its name only when complete, or stdout, a pipe, a FIFO or a
// device in place. Contract: a regular output is written to OUT.part (never through a symbolic link, locked
// against a second writer) and renamed by commit(); without commit() OUT.part stays and OUT is untouched.
// Errors: Error{io} naming the file; a closed pipe is one too (the program ignores SIGPIPE).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace logitgate {

struct OutputOptions {
  bool binary = true;  // refused on a terminal
  bool force = false;  // replace an existing output
  bool resume =
      false;  // keep what OUT.part holds: existing_size() tells how much, continue_at() where to go on
};

class OutputFile {
 public:
  // path: a file, or "-" for stdout.
  OutputFile(const std::string& path, const OutputOptions& options);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& name() const { return name_; }       // for messages: the path, or "stdout"
  const std::string& part_path() const { return part_; }  // OUT.part; empty where written in place
  bool in_place() const { return part_.empty(); }
  uint64_t offset() const { return offset_; }  // bytes written, counted from the beginning of the output

  void write(const void* data, size_t n);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Seeks back within a regular output to complete a header (never in place). Does not move offset().
  void overwrite(uint64_t at, const void* data, size_t n);

  // Resuming: size of the OUT.part that was found (0: none), its bytes, and where to go on: the rest is cut
  // off.
  uint64_t existing_size() const { return existing_size_; }
  size_t read_existing(uint64_t at, void* data, size_t n) const;  // fewer than n at the end alone
  void continue_at(uint64_t size);

  // Makes the output durable and renames OUT.part to OUT. In place: reports what is left to report.
  void commit();

 private:
  void open_in_place(int fd, const OutputOptions& options);
  void open_part(const OutputOptions& options);
  bool lock_part();
  void rename_part();
  void sync_directory() const;
  void write_at_end(const char* data, size_t n);

  std::string name_;
  std::string path_;
  std::string part_;
  int fd_ = -1;
  uint64_t offset_ = 0;
  uint64_t existing_size_ = 0;
  bool force_ = false;
  bool committed_ = false;
};

// Throws Error{io} if `path` exists and may not be replaced (what OutputFile's constructor checks, before any
// work is done).
void check_output_is_free(const std::string& path, bool force);

// Throws Error{io} "NAME: ACTION: what errno says" for a failed system call.
[[noreturn]] void fail_errno(const std::string& name, const char* action);

}  // namespace logitgate
