// Tests the safetensors writer: header, offsets, values, and what it refuses.
// Contract: the header is read back with a JSON parser, the values by the offsets it gives.
#include "formats/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lib/error.h"

namespace logitgate {
namespace {

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "safetensors_" + std::to_string(::getpid());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string path() const { return directory_ + "/out.safetensors"; }
  std::string bytes() const {
    std::ostringstream out;
    out << std::ifstream(path(), std::ios::binary).rdbuf();
    return out.str();
  }
  std::string error_of(const std::function<void()>& action) const {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_TRUE(error.message().starts_with(path() + ": ")) << error.message();
      return error.message().substr(path().size() + 2);
    }
    return "no error";
  }
  std::string directory_;
};

TEST_F(Safetensors, HeaderAndValues) {
  const std::vector<float> f4 = {1, 2, 3, 4, 5, 6};
  const std::vector<double> f8 = {0.1, 0.2};
  SafetensorsWriter writer(path(),
                           {{"a\"\n\xc3\xa9", false, {2, 3}}, {"none", false, {0, 3}}, {"b", true, {2}}},
                           {{"tool", "logitgate"}}, {});
  writer.write(std::span<const float>(f4).first(4));
  writer.write(std::span<const float>(f4).last(2));
  writer.write(std::span<const double>(f8));
  writer.commit();
  const std::string file = bytes();
  uint64_t n = 0;
  std::memcpy(&n, file.data(), 8);
  EXPECT_EQ(n % 8, 0u);
  const auto header = nlohmann::json::parse(file.substr(8, n));
  EXPECT_EQ(header.size(), 4u);
  EXPECT_EQ(header["__metadata__"]["tool"], "logitgate");
  EXPECT_EQ(header["a\"\n\xc3\xa9"],
            (nlohmann::json{{"dtype", "F32"}, {"shape", {2, 3}}, {"data_offsets", {0, 24}}}));
  EXPECT_EQ(header["none"],
            (nlohmann::json{{"dtype", "F32"}, {"shape", {0, 3}}, {"data_offsets", {24, 24}}}));
  EXPECT_EQ(header["b"], (nlohmann::json{{"dtype", "F64"}, {"shape", {2}}, {"data_offsets", {24, 40}}}));
  ASSERT_EQ(file.size(), 8 + n + 40);
  EXPECT_EQ(std::memcmp(file.data() + 8 + n, f4.data(), 24), 0);
  EXPECT_EQ(std::memcmp(file.data() + 8 + n + 24, f8.data(), 16), 0);
}

TEST_F(Safetensors, NoTensors) {
  SafetensorsWriter writer(path(), {}, {}, {});
  writer.commit();
  EXPECT_EQ(bytes(), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
}

TEST_F(Safetensors, Refusals) {
  const std::vector<float> five(5);
  const auto writer = [&](const std::vector<SafetensorsEntry>& entries) {
    return std::make_unique<SafetensorsWriter>(path(), entries, std::map<std::string, std::string>{},
                                               OutputOptions{.force = true});
  };
  EXPECT_EQ(error_of([&] { writer({{"a", false, {1}}, {"a", false, {1}}}); }), "two tensors are named 'a'");
  EXPECT_EQ(error_of([&] {
              writer({{"__metadata__", false, {1}}});
            }),
            "'__metadata__' cannot be a tensor's name in a safetensors file");
  EXPECT_EQ(error_of([&] {
              writer({{"\xff", false, {1}}});
            }),
            "'\\xff' cannot be a tensor's name in a safetensors file");
  EXPECT_EQ(error_of([&] {
              writer({{"a", false, {uint64_t{1} << 60, 16}}});
            }),
            "tensor 'a' has 2^64 bytes or more");
  EXPECT_EQ(error_of([&] {
              writer({{"a", true, {uint64_t{1} << 60}}, {"b", true, {uint64_t{1} << 60}}});
            }),
            "the tensors have 2^64 bytes or more");
  EXPECT_EQ(error_of([&] {
              writer({{"a", false, {4}}})->write(std::span<const float>(five));
            }),
            "5 values more than the tensors of the header hold");
  EXPECT_EQ(error_of([&] {
              const auto w = writer({{"a", false, {6}}});
              w->write(std::span<const float>(five));
              w->commit();
            }),
            "tensor 'a' has 5 values of 6");
  EXPECT_FALSE(std::filesystem::exists(path()));
}

}  // namespace
}  // namespace logitgate
