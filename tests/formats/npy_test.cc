// Tests reading and writing of .npy arrays: against NumPy's own bytes, over types and shapes, and on damaged files.
// Contract: every damaged file is refused or read whole; never a crash.
#include "formats/npy.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <thread>

#include "lib/error.h"
#include "tests/support/gguf_builder.h"

namespace logitgate::testing {
namespace {

class Npy : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "npy_" + std::to_string(::getpid());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string write(const std::string& bytes, const std::string& name = "a.npy") const {
    std::filesystem::remove(path(name));
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  static std::string bytes_of(const std::string& file) {
    std::ostringstream out;
    out << std::ifstream(file, std::ios::binary).rdbuf();
    return out.str();
  }
  std::string error_of(const std::function<void()>& action) const {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.message();
      EXPECT_TRUE(error.message().starts_with(directory_ + "/")) << error.message();
      return error.message().substr(directory_.size() + 1);
    }
    return "no error";
  }
  // The error of reading all values of a file with these bytes.
  std::string error_of(const std::string& bytes) const {
    return error_of([&] {
      NpyReader reader(write(bytes));
      std::vector<float> values(reader.n_values());
      reader.read(values);
    });
  }

  std::string directory_;
};

std::string npy(const std::string& dictionary, const std::string& data, char version = 1) {
  const auto n = static_cast<uint32_t>(dictionary.size());
  const std::string length = version == 1 ? encode(static_cast<uint16_t>(n)) : encode(n);
  return std::string("\x93NUMPY") + version + '\0' + length + dictionary + data;
}
std::string dictionary(const std::string& descr, const std::string& shape,
                       const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}
template <class T>
std::string data_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST_F(Npy, GoldenFileIsReadAndWrittenBackByteForByte) {
  const std::string golden = std::string(TESTDATA) + "/golden/qwen3.f32.logits.npy";
  NpyReader reader(golden);
  ASSERT_EQ(reader.shape(), (std::vector<uint64_t>{772, 272}));
  EXPECT_FALSE(reader.is_f64());
  for (const bool known : {true, false}) {
    NpyReader again(golden);
    NpyWriter writer(path("copy.npy"), false, known ? std::optional<uint64_t>(772) : std::nullopt, 272,
                     {.force = !known});
    std::vector<float> rows(272 * 4);
    for (int i = 0; i < 193; ++i) {
      again.read(rows);
      writer.write(std::span<const float>(rows));
    }
    writer.commit();
    EXPECT_EQ(bytes_of(path("copy.npy")), bytes_of(golden));
  }
}

TEST_F(Npy, Types) {
  const std::vector<float> f4 = {0.1f, -0.0f, INFINITY, 1e-45f, NAN, 3.0f};
  const std::vector<double> f8 = {0.1, -0.0, INFINITY, 5e-324, NAN, 3.0};
  const std::vector<uint16_t> f2 = {0x3c00, 0x8000, 0x7c00, 0x0001, 0x7e00, 0xc000};
  std::vector<float> floats(6);
  std::vector<double> doubles(6);
  const std::string in4 = write(npy(dictionary("<f4", "(2, 3)"), data_of(f4)), "f4");
  const std::string in8 = write(npy(dictionary("<f8", "(6,)"), data_of(f8)), "f8");
  const std::string in2 = write(npy(dictionary("<f2", "(1, 6)"), data_of(f2)), "f2");
  NpyReader(in4).read(floats);
  EXPECT_EQ(std::memcmp(floats.data(), f4.data(), 24), 0);
  NpyReader(in4).read(doubles);
  EXPECT_EQ(doubles[0], double{0.1f});
  NpyReader(in8).read(doubles);
  EXPECT_EQ(std::memcmp(doubles.data(), f8.data(), 48), 0);
  NpyReader(in8).read(floats);
  EXPECT_EQ(floats[0], 0.1f);
  EXPECT_TRUE(NpyReader(in8).is_f64());
  NpyReader(in2).read(floats);
  EXPECT_EQ(floats[0], 1.0f);
  EXPECT_EQ(floats[3], 0x1p-24f);
  EXPECT_TRUE(std::isnan(floats[4]) && std::isinf(floats[2]) && std::signbit(floats[1]));
  NpyReader(in2).read(doubles);
  EXPECT_EQ(doubles[5], -2.0);
}

TEST_F(Npy, HeadersThatNumpyMayWrite) {
  const std::string four = data_of(std::vector<float>{1, 2, 3, 4});
  for (const std::string text : {"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }   \n",
                                 "{'shape':(2,2),'fortran_order':False,'descr':'<f4'}",
                                 "{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (4, 1), }",
                                 "  { 'descr' : '<f4' , 'fortran_order' : False, 'shape' : ( 1 , 4 ) }"}) {
    for (const char version : {'\1', '\2', '\3'})
      EXPECT_EQ(error_of(npy(text, four, version)), "no error") << text;
  }
  EXPECT_EQ(error_of(npy(dictionary("<f4", "()"), four.substr(0, 4))), "no error");
  EXPECT_EQ(error_of(npy(dictionary("<f4", "(0, 7)"), "")), "no error");
}

TEST_F(Npy, BadHeaders) {
  const auto starts = [&](const std::string& bytes, const std::string& want) {
    const std::string got = error_of(bytes);
    EXPECT_TRUE(got.starts_with("a.npy: " + want)) << got;
  };
  const std::string four(16, '\0');
  starts("", "offset 0: the file starts with ''");
  starts(
      "PK\x03\x04zip",
      "offset 0: the file starts with 'PK\\x03\\x04zi', and a .npy array with '\\x93NUMPY'; this is a zip");
  starts(npy(dictionary("<f4", "(4,)"), four, 4), "offset 6: version 4.0 of the format");
  starts(npy(dictionary(">f4", "(4,)"), four), "elements of type '>f4'; little-endian floats");
  starts(npy(dictionary("<i8", "(2,)"), four), "elements of type '<i8'");
  starts(npy(dictionary("<f16", "(1,)"), four), "elements of type '<f16'");
  starts(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }", four),
         "an array of records");
  starts(npy(dictionary("<f4", "(2, 2)", "True"), four), "the array is in Fortran order");
  starts(npy(dictionary("<f4", "(4,)", "Maybe"), four), "offset 44: True or False must follow");
  starts(npy(dictionary("<f4", "(-4,)"), four), "offset 61: a dimension must be an integer");
  starts(npy(dictionary("<f4", "(18446744073709551616,)"), four), "offset 80: a dimension of 2^64 or more");
  starts(npy(dictionary("<f4", "(4294967296, 4294967296)"), four), "the shape has 2^64 elements or more");
  starts(npy(dictionary("<f4", "(4611686018427387904,)"), four), "the shape takes 2^64 bytes or more");
  EXPECT_EQ(error_of(npy(dictionary("<f4", "(0, 18446744073709551615, 2)"), "")), "no error");
}

TEST_F(Npy, BadHeaderText) {
  const std::string four(16, '\0');
  for (const std::string text :
       {"", "{", "{}", "x", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': False, 'shape': (4,)",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (4,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), 'more': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 4}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4,)} x", "{'descr: <f4", "{'descr' '<f4'}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4;)}"}) {
    EXPECT_NE(error_of(npy(text, four)), "no error") << text;
  }
  std::string many = "(1";
  for (int i = 0; i < 100; ++i) many += ", 1";
  EXPECT_NE(error_of(npy(dictionary("<f4", many + ")"), std::string(4, '\0'))), "no error");
  EXPECT_TRUE(error_of(std::string("\x93NUMPY\2\0", 8) + encode(0xffffffffu))
                  .starts_with("a.npy: offset 8: a header of"));
}

TEST_F(Npy, SizeMustBeTheShapes) {
  const std::string header = dictionary("<f4", "(2, 2)");
  const auto at = std::to_string(10 + header.size());
  EXPECT_EQ(error_of(npy(header, std::string(12, '\0'))),
            "a.npy: offset " + at + ": the shape (2, 2) takes 16 bytes, and the file has 12: it is cut");
  EXPECT_EQ(error_of(npy(header, std::string(17, '\0'))),
            "a.npy: offset " + at + ": the shape (2, 2) takes 16 bytes, and the file has 17: it is too long");
  NpyReader reader(write(npy(header, std::string(16, '\0'))));
  std::vector<float> three(3), two(2);
  reader.read(three);
  EXPECT_EQ(error_of([&] { reader.read(two); }),
            "a.npy: 2 values wanted behind the first 3, and the array has 4");
}

TEST_F(Npy, PipesAreReadToTheirEnd) {
  const std::string fifo = path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const auto read_through_pipe = [&](size_t n_data) {
    std::thread writer([&] {
      std::ofstream(fifo, std::ios::binary) << npy(dictionary("<f8", "(2, 2)"), std::string(n_data, '\0'));
    });
    const std::string error = error_of([&] {
      NpyReader reader(fifo);
      std::vector<double> values(2);
      reader.read(values);
      reader.read(values);
    });
    writer.join();
    return error;
  };
  EXPECT_EQ(read_through_pipe(32), "no error");
  EXPECT_NE(read_through_pipe(31).find("it is cut"), std::string::npos);
  EXPECT_NE(read_through_pipe(33).find("the file goes on"), std::string::npos);
}

TEST_F(Npy, EveryCutIsRefused) {
  const std::string whole = npy(dictionary("<f4", "(2, 3)"), data_of(std::vector<float>(6, 1.5f)));
  EXPECT_EQ(error_of(whole), "no error");
  for (size_t n = 0; n < whole.size(); ++n) ASSERT_NE(error_of(whole.substr(0, n)), "no error") << n;
}

TEST_F(Npy, RandomDamageNeverCrashes) {
  const std::string whole = npy(dictionary("<f4", "(2, 3)"), data_of(std::vector<float>(6, 1.5f)));
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 1 + round % 3; ++i)
      damaged[random() % damaged.size()] ^= static_cast<char>(1u << random() % 8);
    error_of(damaged);
  }
}

TEST_F(Npy, WriterWidensRoundsAndCounts) {
  const std::vector<float> f4 = {0.1f, 2, 3, 4};
  const std::vector<double> f8 = {0.1, 2, 3, 4};
  {
    NpyWriter wide(path("wide.npy"), true, 2, 4, {});
    wide.write(std::span<const float>(f4));
    wide.write(std::span<const double>(f8));
    wide.commit();
    NpyWriter narrow(path("narrow.npy"), false, std::nullopt, 4, {});
    narrow.write(std::span<const double>(f8));
    narrow.commit();
  }
  std::vector<double> got(8);
  NpyReader(path("wide.npy")).read(got);
  EXPECT_EQ(got[0], double{0.1f});
  EXPECT_EQ(got[4], 0.1);
  NpyReader narrow(path("narrow.npy"));
  EXPECT_EQ(narrow.shape(), (std::vector<uint64_t>{1, 4}));
  std::vector<float> row(4);
  narrow.read(row);
  EXPECT_EQ(row, f4);
}

TEST_F(Npy, WriterRefusesWhatDoesNotFit) {
  const std::vector<float> values(5);
  EXPECT_EQ(error_of([&] {
              NpyWriter writer(path("w.npy"), false, 2, 5, {});
              writer.write(std::span<const float>(values));
              writer.commit();
            }),
            "w.npy: 5 values were written, and 2 rows of 5 declared");
  EXPECT_FALSE(std::filesystem::exists(path("w.npy")));
  EXPECT_NE(error_of([&] {
              NpyWriter writer(path("v.npy"), false, std::nullopt, 4, {});
              writer.write(std::span<const float>(values));
              writer.commit();
            }),
            "no error");
  EXPECT_THROW(NpyWriter("/dev/null", false, std::nullopt, 4, {}), Error);
}

}  // namespace
}  // namespace logitgate::testing
