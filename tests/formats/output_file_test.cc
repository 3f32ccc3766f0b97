// Tests OutputFile and InputFile: .part and rename, refusal, locking, links, pipes and devices, resuming.
// Contract: works in a fresh temporary directory, and leaves nothing.
#include "formats/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "formats/input_file.h"
#include "lib/error.h"

namespace logitgate {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);
    std::string pattern = ::testing::TempDir() + "output_file_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  static std::string contents(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  static void put(const std::string& file, const std::string& text) { std::ofstream(file) << text; }
  static std::string error_of(const std::string& file, const OutputOptions& options,
                              ErrorCode code = ErrorCode::io) {
    try {
      OutputFile output(file, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.message();
      return error.message();
    }
    ADD_FAILURE() << file << " was opened";
    return "";
  }

  std::string directory_;
};

TEST_F(OutputFileTest, AppearsOnlyWhenCommitted) {
  OutputFile output(path("out"), {});
  output.write("hello");
  EXPECT_EQ(output.offset(), 5u);
  EXPECT_FALSE(fs::exists(path("out")));
  EXPECT_EQ(contents(path("out.part")), "hello");
  output.overwrite(0, "j", 1);
  output.commit();
  EXPECT_EQ(contents(path("out")), "jello");
  EXPECT_FALSE(fs::exists(path("out.part")));
}

TEST_F(OutputFileTest, PartStaysWithoutCommitAndIsReplacedByTheNextRun) {
  { OutputFile(path("out"), {}).write("first run"); }
  EXPECT_EQ(contents(path("out.part")), "first run");
  EXPECT_FALSE(fs::exists(path("out")));
  OutputFile output(path("out"), {});
  output.write("2nd");
  output.commit();
  EXPECT_EQ(contents(path("out")), "2nd");
}

TEST_F(OutputFileTest, ExistingOutputIsRefusedUnlessForced) {
  put(path("out"), "old");
  EXPECT_NE(error_of(path("out"), {}).find("--force"), std::string::npos);
  EXPECT_FALSE(fs::exists(path("out.part")));
  EXPECT_THROW(check_output_is_free(path("out"), false), Error);
  EXPECT_NO_THROW(check_output_is_free(path("out"), true));
  OutputFile output(path("out"), {.force = true});
  output.write("new");
  EXPECT_EQ(contents(path("out")), "old");
  output.commit();
  EXPECT_EQ(contents(path("out")), "new");
}

TEST_F(OutputFileTest, OutputMadeMeanwhileIsNotReplaced) {
  OutputFile output(path("out"), {});
  output.write("ours");
  put(path("out"), "theirs");
  EXPECT_THROW(output.commit(), Error);
  EXPECT_EQ(contents(path("out")), "theirs");
  EXPECT_EQ(contents(path("out.part")), "ours");
}

TEST_F(OutputFileTest, SecondWriterIsRefused) {
  OutputFile output(path("out"), {});
  output.write("first");
  EXPECT_NE(error_of(path("out"), {}).find("another process is writing"), std::string::npos);
  EXPECT_NE(error_of(path("out"), {.force = true}).find("another process is writing"), std::string::npos);
  EXPECT_EQ(contents(path("out.part")), "first");
}

TEST_F(OutputFileTest, PartThatIsALinkOrNoFileIsRefused) {
  put(path("precious"), "precious");
  fs::create_symlink(path("precious"), path("a.part"));
  EXPECT_NE(error_of(path("a"), {}).find("symbolic link"), std::string::npos);
  fs::create_hard_link(path("precious"), path("b.part"));
  EXPECT_NE(error_of(path("b"), {}).find("hard links"), std::string::npos);
  ASSERT_EQ(::mkfifo(path("c.part").c_str(), 0600), 0);
  EXPECT_NE(error_of(path("c"), {}).find("not a regular file"), std::string::npos);
  EXPECT_EQ(contents(path("precious")), "precious");
}

TEST_F(OutputFileTest, DirectoriesMissingFoldersAndEmptyNamesAreRefused) {
  EXPECT_NE(error_of(directory_, {}).find("is a directory"), std::string::npos);
  EXPECT_NE(error_of(path("no/such/out"), {}).find("No such file"), std::string::npos);
  error_of("", {}, ErrorCode::usage);
}

TEST_F(OutputFileTest, DevicesAndFifosAreWrittenInPlace) {
  OutputFile null("/dev/null", {});
  EXPECT_TRUE(null.in_place());
  null.write("gone");
  null.commit();

  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] {
    InputFile input(path("fifo"));
    EXPECT_FALSE(input.seekable());
    got.resize(100);
    got.resize(input.read(got.data(), got.size()));
  });
  OutputFile fifo(path("fifo"), {});
  EXPECT_TRUE(fifo.in_place());
  EXPECT_THROW(fifo.overwrite(0, "x", 1), Error);
  fifo.write("through ");
  fifo.write("a fifo");
  fifo.commit();
  reader.join();
  EXPECT_EQ(got, "through a fifo");
  EXPECT_NE(error_of("/dev/null", {.resume = true}, ErrorCode::usage).find("regular file"),
            std::string::npos);
}

TEST_F(OutputFileTest, DescriptorsByNameContinueWhereTheyStand) {
  const int fd = ::open(path("log").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, "before ", 7), 7);
  OutputFile output("/dev/fd/" + std::to_string(fd), {});
  output.write("after");
  output.commit();
  ::close(fd);
  EXPECT_EQ(contents(path("log")), "before after");
}

TEST_F(OutputFileTest, ClosedPipeIsAnError) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  OutputFile output("/dev/fd/" + std::to_string(ends[1]), {});
  ::close(ends[0]);
  try {
    output.write("nobody");
    ADD_FAILURE() << "written to nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_NE(error.message().find("closed the pipe"), std::string::npos);
  }
  ::close(ends[1]);
}

TEST_F(OutputFileTest, NonBlockingPipesAndLargeWritesComplete) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  const std::string large(1 << 20, 'x');
  std::string got(large.size() + 1, '\0');
  std::thread reader([&] {
    InputFile input("/dev/fd/" + std::to_string(ends[0]));
    got.resize(input.read(got.data(), large.size()));
  });
  OutputFile output("/dev/fd/" + std::to_string(ends[1]), {});
  output.write(large);
  reader.join();
  EXPECT_EQ(got, large);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(OutputFileTest, BinaryIsRefusedOnATerminal) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0)
    GTEST_SKIP() << "no pseudo terminals";
  char name[256];
  ASSERT_EQ(::ptsname_r(terminal, name, sizeof name), 0);
  EXPECT_NE(error_of(name, {}).find("terminal"), std::string::npos);
  OutputFile text(name, {.binary = false});
  text.write("text\n");
  ::close(terminal);
}

TEST_F(OutputFileTest, ResumeContinuesThePart) {
  { OutputFile(path("out"), {}).write("complete|torn"); }
  {
    OutputFile output(path("out"), {.resume = true});
    EXPECT_EQ(output.existing_size(), 13u);
    char buffer[20] = {};
    EXPECT_EQ(output.read_existing(0, buffer, 20), 13u);
    EXPECT_EQ(std::string(buffer), "complete|torn");
    output.continue_at(9);
    EXPECT_EQ(output.offset(), 9u);
    output.write("again");
    output.commit();
  }
  EXPECT_EQ(contents(path("out")), "complete|again");
  OutputFile fresh(path("new"), {.resume = true});
  EXPECT_EQ(fresh.existing_size(), 0u);
}

TEST_F(OutputFileTest, InputReadsStreamsAndOffsets) {
  put(path("in"), "0123456789");
  InputFile input(path("in"));
  EXPECT_TRUE(input.seekable());
  EXPECT_EQ(input.size(), 10u);
  char buffer[16] = {};
  EXPECT_EQ(input.read(buffer, 4), 4u);
  EXPECT_EQ(input.read_at(8, buffer, 16), 2u);
  EXPECT_EQ(std::string(buffer, 2), "89");
  EXPECT_EQ(input.read(buffer, 16), 6u);
  EXPECT_EQ(std::string(buffer, 6), "456789");
  EXPECT_EQ(input.read(buffer, 16), 0u);
  input.seek(9);
  EXPECT_EQ(input.read(buffer, 16), 1u);
  EXPECT_THROW(InputFile(path("missing")), Error);
  EXPECT_THROW(InputFile{directory_}, Error);
}

}  // namespace
}  // namespace logitgate
