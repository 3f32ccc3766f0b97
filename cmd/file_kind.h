// Tells a model, a dump and a token batch apart by what they hold, never by their names.
// Contract: what was looked at is still there for the reader that comes next, also where it is a pipe. Errors: Error{io}.
#pragma once

#include <atomic>
#include <memory>
#include <string>

namespace logitgate {

enum class FileKind { model, dump, batch };

class FileProbe {
 public:
  // input: a file, or "-" for stdin.
  explicit FileProbe(const std::string& input);
  FileKind kind() const { return kind_; }
  // After reading: throws where bytes of a pipe could not be read on behalf of the reader.
  void check_stdin() const;

 private:
  std::string name_;
  FileKind kind_ = FileKind::batch;
  std::shared_ptr<std::atomic<int>> relay_errno_;  // empty where stdin was not relayed
};

}  // namespace logitgate
