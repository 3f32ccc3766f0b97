// Feeds the fixtures of testdata/must_fail to the readers of their formats.
// Contract: README.md there lists every file of model/, batch/ and array/ with its message, or with "–" where the
// format is fine and only a verb refuses the contents; each file must give what is listed, as one line that names it.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>

#include "formats/gguf.h"
#include "formats/npy.h"
#include "formats/token_jsonl.h"
#include "lib/error.h"

namespace logitgate {
namespace {

const std::string kFolder = std::string(TESTDATA) + "/must_fail/";

// file → message, of the lines "| `file` | `message` |".
std::map<std::string, std::string> listed() {
  std::map<std::string, std::string> result;
  std::ifstream readme(kFolder + "README.md");
  for (std::string line; std::getline(readme, line);) {
    if (!line.starts_with("| `")) continue;
    const size_t middle = line.find("` | ");
    std::string message = line.substr(middle + 4, line.size() - middle - 6);
    if (message.starts_with('`')) message = message.substr(1, message.size() - 2);
    result[line.substr(3, middle - 3)] = message;
  }
  return result;
}

void read_whole(const std::string& folder, const std::string& path) {
  if (folder == "model") {
    GgufFile::open(path);
  } else if (folder == "batch") {
    validate_tokens({path}, {});
  } else {
    NpyReader reader(path);
    for (uint64_t left = reader.n_values(); left > 0;) {
      std::vector<float> values(std::min<uint64_t>(left, 1024));
      reader.read(values);
      left -= values.size();
    }
  }
}

std::string refusal(const std::string& folder, const std::string& path) {
  try {
    read_whole(folder, path);
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::corrupt || error.code() == ErrorCode::unsupported ||
                error.code() == ErrorCode::io)
        << path;
    return error.message();
  }
  return "–";
}

class MustFail : public testing::TestWithParam<std::string> {};

TEST_P(MustFail, IsRefusedAsListed) {
  const auto messages = listed();
  size_t n_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder + GetParam())) {
    const std::string name = GetParam() + "/" + entry.path().filename().string();
    const auto started = std::chrono::steady_clock::now();
    std::string message = refusal(GetParam(), kFolder + name);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
    EXPECT_LT(seconds.count(), 10.0) << name;
    EXPECT_LT(message.size(), kFolder.size() + 300) << name;
    for (const char c : message) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20) << name;
    const size_t folder = message.find(kFolder + GetParam() + "/");
    EXPECT_EQ(folder, message == "–" ? std::string::npos : 0) << message;
    if (folder == 0) message = message.substr(kFolder.size() + GetParam().size() + 1);
    const auto found = messages.find(name);
    const std::string want = found == messages.end() ? "not listed" : found->second;
    EXPECT_EQ(want, message.substr(0, want.size())) << name;  // libraries' own words may follow
    EXPECT_TRUE(want == "–" || want.size() > entry.path().filename().string().size() + 12) << name;
    ++n_files;
  }
  EXPECT_GT(n_files, 20u);
}

INSTANTIATE_TEST_SUITE_P(Formats, MustFail, testing::Values("model", "batch", "array"),
                         [](const auto& folder) { return folder.param; });

}  // namespace
}  // namespace logitgate
