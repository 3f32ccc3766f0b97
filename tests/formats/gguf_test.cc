// Tests the GGUF reader on the golden models, on built files of every kind, and on damaged ones.
// Contract: a damaged file gives an Error or, where the damage is to values alone, a success; never a crash.
#include "formats/gguf.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "lib/error.h"
#include "tests/support/gguf_builder.h"

namespace logitgate::testing {
namespace {

const std::string kGolden = std::string(TESTDATA) + "/golden/";

class Gguf : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "gguf_" + std::to_string(::getpid());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& bytes, const std::string& name = "m.gguf") const {
    const std::string path = directory_ + "/" + name;
    std::filesystem::remove(path);  // rewriting in place is slow where the filesystem then syncs
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  GgufFile open(const GgufBuilder& builder) const { return GgufFile::open(write(builder.bytes())); }
  // The error of an action, without the directory; "no error".
  std::string error_of(const std::function<void()>& action, ErrorCode code = ErrorCode::corrupt) const {
    try {
      action();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.message();
      EXPECT_EQ(error.message().find('\n'), std::string::npos) << error.message();
      EXPECT_TRUE(error.message().starts_with(directory_ + "/")) << error.message();
      return error.message().substr(directory_.size() + 1);
    }
    return "no error";
  }
  std::string error_of(const std::string& bytes, ErrorCode code = ErrorCode::corrupt) const {
    return error_of([&] { GgufFile::open(write(bytes)); }, code);
  }
  std::string error_of(const GgufBuilder& builder, ErrorCode code = ErrorCode::corrupt) const {
    return error_of(builder.bytes(), code);
  }

  std::string directory_;
};

// A file with one of everything.
GgufBuilder sample() {
  const std::string inner = encode_array(kU8, 3, "\x01\x02\x03") + encode_array(kString, 1, encode_text("x"));
  GgufBuilder b;
  b.text("general.architecture", "sample");
  b.entry("u8", kU8, encode<uint8_t>(200)).entry("i8", kI8, encode<int8_t>(-100)).u16("u16", 60000);
  b.entry("i16", kI16, encode<int16_t>(-30000))
      .u32("u32", 4000000000u)
      .i32("i32", -2000000000)
      .f32("f32", 0.1f);
  b.boolean("bool", true).text("string", "h\xc3\xa9llo").u64("u64", UINT64_MAX);
  b.entry("i64", kI64, encode<int64_t>(INT64_MIN)).entry("f64", kF64, encode(0.1));
  b.entry("numbers", kArray, encode_array(kI32, 3, encode(1) + encode(-2) + encode(3)));
  b.entry("empty", kArray, encode_array(kF32, 0, "")).texts("strings", {"a", "", "c"});
  b.entry("flags", kArray, encode_array(kBool, 2, std::string("\0\1", 2)));
  b.entry("nested", kArray, encode_array(kArray, 2, inner));
  b.tensor("one", WeightType::F32, {3}, std::vector<float>{1, 2, 3});
  b.tensor("q", WeightType::Q8_0, {32, 2}, std::vector<float>(64, 0.5f));
  b.tensor("four", WeightType::F16, {1, 2, 1, 3}, std::vector<float>(6, 1.0f));
  b.tensor("known", WeightType::Q4_K, {256}, std::string(144, '\1'));
  return b;
}

TEST_F(Gguf, GoldenModel) {
  const GgufFile file = GgufFile::open(kGolden + "qwen3.q8_0.gguf");
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.get_string("general.architecture"), "qwen3");
  EXPECT_EQ(file.get_u64("qwen3.embedding_length"), 128u);
  EXPECT_EQ(file.get_f64("qwen3.rope.freq_base"), 1e6);
  EXPECT_EQ(file.get_f64("qwen3.attention.layer_norm_rms_epsilon"), double{1e-6f});
  EXPECT_EQ(file.get_bool("tokenizer.ggml.add_bos_token"), false);
  EXPECT_EQ(file.get_strings("tokenizer.ggml.tokens")->size(), 272u);
  EXPECT_EQ(file.get_u64s("tokenizer.ggml.token_type")->at(0), 1u);
  EXPECT_EQ(file.get_u64("qwen3.missing"), std::nullopt);
  EXPECT_EQ(file.tensors().size(), 25u);
  EXPECT_EQ(file.file_bytes(), 449472u);
  const GgufTensor* tensor = file.find("token_embd.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->type, WeightType::Q8_0);
  EXPECT_EQ(tensor->ne, (std::vector<uint64_t>{128, 272}));
  EXPECT_EQ(tensor->n_bytes, 128u / 32 * 34 * 272);
  EXPECT_EQ(file.find("nothing"), nullptr);
}

TEST_F(Gguf, EveryGoldenTypeHoldsTheSameModel) {
  for (const char* name : {"qwen3.f32.gguf", "qwen3.f16.gguf", "qwen3.bf16.gguf", "qwen3.q8_0.gguf"}) {
    const GgufFile file = GgufFile::open(kGolden + name);
    const GgufTensor* tensor = file.find("blk.1.ffn_down.weight");
    ASSERT_NE(tensor, nullptr);
    std::vector<float> row(tensor->ne[0]);
    weight_type_info(tensor->type).dequantize_row(tensor->data, row.data(), row.size());
    double sum = 0;
    for (const float w : row) sum += std::fabs(static_cast<double>(w));
    EXPECT_GT(sum, 1.0) << name;
    EXPECT_LT(sum, 100.0) << name;
  }
}

TEST_F(Gguf, EveryMetadataType) {
  for (const uint32_t version : {2u, 3u}) {
    const GgufFile file = open(sample().version(version));
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.get_u64("u8"), 200u);
    EXPECT_EQ(std::get<int64_t>(*file.value("i8")), -100);
    EXPECT_EQ(file.get_u64("u16"), 60000u);
    EXPECT_EQ(std::get<int64_t>(*file.value("i16")), -30000);
    EXPECT_EQ(file.get_u64("u32"), 4000000000u);
    EXPECT_EQ(file.get_f64("i32"), -2e9);
    EXPECT_EQ(file.get_f64("f32"), double{0.1f});
    EXPECT_EQ(file.get_bool("bool"), true);
    EXPECT_EQ(file.get_string("string"), "h\xc3\xa9llo");
    EXPECT_EQ(file.get_u64("u64"), UINT64_MAX);
    EXPECT_EQ(std::get<int64_t>(*file.value("i64")), INT64_MIN);
    EXPECT_EQ(file.get_f64("f64"), 0.1);
    EXPECT_EQ(file.get_f64s("numbers"), (std::vector<double>{1, -2, 3}));
    EXPECT_EQ(file.get_f64s("empty"), std::vector<double>{});
    EXPECT_EQ(file.get_strings("strings"), (std::vector<std::string>{"a", "", "c"}));
    EXPECT_EQ(file.get_bools("flags"), (std::vector<bool>{false, true}));
    const auto nested = std::get<std::shared_ptr<GgufArray>>(*file.value("nested"))->values();
    ASSERT_EQ(nested.size(), 2u);
    const auto second = std::get<std::shared_ptr<GgufArray>>(nested[1]);
    EXPECT_EQ(gguf_type_name(second->element_type), "string");
    EXPECT_EQ(std::get<std::string>(second->values().at(0)), "x");
  }
}

TEST_F(Gguf, AnotherTypeThanAskedForNamesTheKey) {
  const GgufFile file = open(sample());
  const std::string start = "m.gguf: metadata ";
  EXPECT_EQ(error_of([&] { file.get_u64("string"); }),
            start + "'string' is a string, and must be an integer of 0 or more");
  EXPECT_EQ(error_of([&] { file.get_u64("i8"); }),
            start + "'i8' is a negative integer, and must be an integer of 0 or more");
  EXPECT_EQ(error_of([&] { file.get_u64("f32"); }),
            start + "'f32' is a float, and must be an integer of 0 or more");
  EXPECT_EQ(error_of([&] { file.get_u64("bool"); }),
            start + "'bool' is a bool, and must be an integer of 0 or more");
  EXPECT_EQ(error_of([&] { file.get_f64("strings"); }),
            start + "'strings' is an array of string, and must be a number");
  EXPECT_EQ(error_of([&] { file.get_bool("u8"); }), start + "'u8' is an integer, and must be a bool");
  EXPECT_EQ(error_of([&] { file.get_string("u8"); }), start + "'u8' is an integer, and must be a string");
  EXPECT_EQ(error_of([&] { file.get_u64s("u8"); }), start + "'u8' is an integer, and must be an array");
  EXPECT_EQ(error_of([&] { file.get_strings("numbers"); }),
            start + "'numbers' is an integer, and must be a string");
}

TEST_F(Gguf, Tensors) {
  const GgufFile file = open(sample());
  ASSERT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.tensors()[2].name, "four");
  EXPECT_EQ(file.tensors()[2].ne, (std::vector<uint64_t>{1, 2, 1, 3}));
  EXPECT_EQ(file.tensors()[2].n_bytes, 12u);
  EXPECT_EQ(file.find("known")->type, WeightType::Q4_K);  // not computed, and no error here
  EXPECT_EQ(file.find("known")->n_bytes, 144u);
  std::vector<float> row(64);
  weight_type_info(WeightType::Q8_0).dequantize_row(file.find("q")->data, row.data(), 64);
  EXPECT_NEAR(row[63], 0.5f, 1e-4);
  EXPECT_EQ(std::memcmp(file.find("one")->data, std::vector<float>{1, 2, 3}.data(), 12), 0);
}

TEST_F(Gguf, Alignment) {
  for (const uint32_t alignment : {8u, 16u, 64u, 4096u}) {
    GgufBuilder b;
    b.alignment(alignment).tensor("a", WeightType::F32, {1}, std::vector<float>{1});
    b.tensor("b", WeightType::F32, {1}, std::vector<float>{2});
    const GgufFile file = open(b);
    EXPECT_EQ(file.find("b")->data - file.find("a")->data, alignment);
  }
  for (const uint32_t alignment : {0u, 1u, 4u, 24u, 0xffffffffu}) {
    EXPECT_EQ(
        error_of(GgufBuilder().u32("general.alignment", alignment)),
        fmt::format("m.gguf: general.alignment is {}, and must be a power of two of 8 or more", alignment));
  }
  EXPECT_NE(error_of(GgufBuilder().text("general.alignment", "32")), "no error");
}

TEST_F(Gguf, NoTensorsAndNoMetadata) { EXPECT_TRUE(open(GgufBuilder()).tensors().empty()); }

TEST_F(Gguf, TinyQwen3OfAnyShape) {
  for (const WeightType type : {WeightType::F32, WeightType::F16, WeightType::BF16, WeightType::Q8_0}) {
    for (const bool tied : {false, true}) {
      const GgufFile file = open(tiny_qwen3({.type = type, .n_layer = 3, .n_vocab = 50, .tied = tied}));
      EXPECT_EQ(file.tensors().size(), 3u * 11 + 2 + (tied ? 0 : 1));
      EXPECT_EQ(file.find("output.weight") == nullptr, tied);
      EXPECT_EQ(file.find("token_embd.weight")->ne, (std::vector<uint64_t>{64, 50}));
    }
  }
}

TEST_F(Gguf, TheBuildersHalvesAreNearest) {
  for (uint32_t h = 0; h < 0x7c00; ++h) {
    const float value = float_from_f16(static_cast<uint16_t>(h));
    const float next = float_from_f16(static_cast<uint16_t>(h + 1));
    ASSERT_EQ(f16_from_float(value), h);
    ASSERT_EQ(f16_from_float(-value), h | 0x8000);
    if (h + 1 < 0x7c00) {
      ASSERT_EQ(f16_from_float((value + next) / 2), h + (h & 1));
    }
  }
}

TEST_F(Gguf, WrongStarts) {
  EXPECT_EQ(error_of(std::string()),
            "m.gguf: offset 0: the file starts with '', and a GGUF model with 'GGUF'");
  EXPECT_EQ(error_of(std::string("PK\x03\x04 zip")),
            "m.gguf: offset 0: the file starts with 'PK\\x03\\x04', and a GGUF model with 'GGUF'");
  EXPECT_EQ(error_of(GgufBuilder().version(1), ErrorCode::unsupported),
            "m.gguf: offset 4: GGUF version 1, and versions 2 and 3 are read");
  EXPECT_EQ(error_of(GgufBuilder().version(4), ErrorCode::unsupported),
            "m.gguf: offset 4: GGUF version 4, and versions 2 and 3 are read");
  EXPECT_EQ(error_of(GgufBuilder().version(0x03000000), ErrorCode::unsupported),
            "m.gguf: offset 4: a big-endian GGUF file, and only little-endian ones are read; convert it with "
            "gguf-convert-endian");
  EXPECT_NE(error_of([&] { GgufFile::open(directory_ + "/none.gguf"); }, ErrorCode::io), "no error");
  EXPECT_NE(error_of([&] { GgufFile::open(directory_ + "/"); }, ErrorCode::io), "no error");
  EXPECT_THROW(GgufFile::open("/dev/null"), Error);
}

TEST_F(Gguf, HostileCountsAndLengths) {
  const auto header = [](uint64_t n_tensors, uint64_t n_entries) {
    return "GGUF" + encode(3u) + encode(n_tensors) + encode(n_entries);
  };
  const uint64_t huge = uint64_t{1} << 60;
  EXPECT_EQ(error_of(header(huge, 0)),
            "m.gguf: offset 24: 1152921504606846976 tensors cannot fit in the 0 bytes left: "
            "the file is cut or damaged");
  EXPECT_EQ(error_of(header(0, huge)),
            "m.gguf: offset 24: 1152921504606846976 metadata entries cannot fit in the 0 bytes "
            "left: the file is cut or damaged");
  EXPECT_EQ(error_of(header(0, 1) + encode(uint64_t{1} << 63) + std::string(99, 'x')),
            "m.gguf: offset 32: the key of metadata entry 0 takes 9223372036854775808 bytes but the file "
            "ends after 99: "
            "it is cut or damaged");
  const auto entry = [&](uint32_t type, const std::string& value) {
    return GgufBuilder().entry("k", type, value).bytes();
  };
  for (const uint64_t n : {huge, uint64_t{1} << 61, UINT64_MAX, uint64_t{1} << 32}) {
    EXPECT_NE(error_of(entry(kString, encode(n))), "no error");
    for (uint32_t type = 0; type <= 13; ++type)
      EXPECT_NE(error_of(entry(kArray, encode_array(type, n, ""))), "no error");
  }
  EXPECT_EQ(error_of(entry(13, "")),
            "m.gguf: offset 33: metadata 'k' has value type 13, and GGUF has 0 to 12");
  EXPECT_EQ(error_of(entry(kArray, encode_array(99, 0, ""))),
            "m.gguf: offset 37: metadata 'k' has value type 99, and GGUF has 0 to 12");
  EXPECT_EQ(error_of(entry(kBool, "\2")), "m.gguf: offset 37: metadata 'k' is 2, and a bool is 0 or 1");
  EXPECT_NE(error_of(entry(kArray, encode_array(kBool, 1, "\2"))), "no error");
  std::string nested = encode_array(kU8, 0, "");
  for (int depth = 2; depth <= 8; ++depth) nested = encode_array(kArray, 1, nested);
  EXPECT_EQ(error_of(entry(kArray, nested)), "no error");
  for (int depth = 9; depth <= 3000; ++depth) nested = encode_array(kArray, 1, nested);
  EXPECT_EQ(error_of(entry(kArray, nested)),
            "m.gguf: offset 133: metadata 'k' nests arrays more than 8 deep");
}

TEST_F(Gguf, NamesTwiceOrEmpty) {
  EXPECT_EQ(error_of(GgufBuilder().u32("a", 1).u32("a", 2)), "m.gguf: offset 41: metadata 'a' appears twice");
  EXPECT_EQ(error_of(GgufBuilder().u32("", 1).u32("b", 2)),
            "m.gguf: offset 24: metadata entry 0 has an empty key");
  const std::vector<float> one = {1};
  EXPECT_EQ(
      error_of(
          GgufBuilder().tensor("t\n", WeightType::F32, {1}, one).tensor("t\n", WeightType::F32, {1}, one)),
      "m.gguf: offset 58: tensor 't\\x0a' appears twice");
  EXPECT_EQ(error_of(GgufBuilder().tensor("", WeightType::F32, {1}, one).u32("a", 1)),
            "m.gguf: offset 41: tensor 0 has no name");
}

// A file with one tensor table entry, written raw, and `n_data` bytes of data.
std::string with_tensor(const std::vector<uint64_t>& ne, uint32_t n_dims, uint32_t type, uint64_t offset,
                        size_t n_data) {
  std::string file =
      "GGUF" + encode(3u) + encode<uint64_t>(1) + encode<uint64_t>(0) + encode_text("t") + encode(n_dims);
  for (const uint64_t n : ne) file += encode(n);
  file += encode(type) + encode(offset);
  file.resize((file.size() + 31) / 32 * 32, '\0');
  return file + std::string(n_data, '\0');
}

TEST_F(Gguf, BadTensors) {
  const uint64_t huge = uint64_t{1} << 60;
  const std::string start = "m.gguf: offset 33: tensor 't' ";
  EXPECT_EQ(error_of(with_tensor({8}, 1, 0, 0, 32)), "no error");
  EXPECT_EQ(error_of(with_tensor({}, 0, 0, 0, 32)), start + "has 0 dimensions, and 1 to 4 are possible");
  EXPECT_EQ(error_of(with_tensor({1, 1, 1, 1, 1}, 5, 0, 0, 32)),
            start + "has 5 dimensions, and 1 to 4 are possible");
  EXPECT_EQ(error_of(with_tensor({8, 0}, 2, 0, 0, 32)), start + "has a dimension of 0");
  EXPECT_EQ(error_of(with_tensor({huge, 16}, 2, 0, 0, 32)), start + "has 2^63 elements or more");
  EXPECT_EQ(error_of(with_tensor({huge, 8}, 2, 0, 0, 32)), start + "has 2^63 elements or more");
  EXPECT_EQ(error_of(with_tensor({huge, 4}, 2, 0, 0, 32)), start + "has 2^64 bytes or more");
  EXPECT_EQ(error_of(with_tensor({UINT64_MAX, UINT64_MAX, UINT64_MAX, 1}, 4, 0, 0, 32)),
            start + "has 2^63 elements or more");
  EXPECT_EQ(error_of(with_tensor({31}, 1, 8, 0, 64)),
            start + "has rows of 31 weights, and Q8_0 needs a multiple of 32");
  EXPECT_EQ(
      error_of(with_tensor({8}, 1, 31, 0, 32), ErrorCode::unsupported),
      "m.gguf: offset 45: tensor 't' has type id 31, which is none that is known (removed, or too new)");
  EXPECT_EQ(error_of(with_tensor({8}, 1, 0xffffffff, 0, 32), ErrorCode::unsupported),
            "m.gguf: offset 45: tensor 't' has type id 4294967295, which is none that is known (removed, or "
            "too new)");
  const std::string at = "m.gguf: offset 49: tensor 't' ";
  EXPECT_EQ(error_of(with_tensor({9}, 1, 0, 0, 32)),
            at + "takes 36 bytes at 0 of the data, and the file has 32: it is cut or damaged");
  EXPECT_EQ(error_of(with_tensor({1}, 1, 0, 64, 32)),
            at + "takes 4 bytes at 64 of the data, and the file has 32: it is cut or damaged");
  EXPECT_EQ(
      error_of(with_tensor({1}, 1, 0, UINT64_MAX - 31, 32)),
      at + "takes 4 bytes at 18446744073709551584 of the data, and the file has 32: it is cut or damaged");
  EXPECT_EQ(error_of(with_tensor({1}, 1, 0, 4, 32)),
            at + "starts at 4 of the data, which is no multiple of 32");
  EXPECT_EQ(
      error_of(with_tensor({huge}, 1, 0, 0, 32)),
      at + "takes 4611686018427387904 bytes at 0 of the data, and the file has 32: it is cut or damaged");
}

TEST_F(Gguf, OverlapsAreRefusedAndAnyOrderIsFine) {
  const std::vector<float> values(8, 1.0f);
  std::string bytes = GgufBuilder()
                          .tensor("a", WeightType::F32, {8}, values)
                          .tensor("b", WeightType::F32, {8}, values)
                          .bytes();
  const size_t a_offset = 24 + 8 + 1 + 4 + 8 + 4;
  const size_t b_offset = a_offset + 8 + 8 + 1 + 4 + 8 + 4;
  bytes.replace(a_offset, 8, encode<uint64_t>(32));
  EXPECT_EQ(error_of(bytes), "m.gguf: offset 82: tensor 'b' overlaps another");
  bytes.replace(b_offset, 8, encode<uint64_t>(0));
  const GgufFile file = GgufFile::open(write(bytes));
  EXPECT_EQ(file.find("a")->data - file.find("b")->data, 32);
}

// Part `no` of `count` with two tensors.
GgufBuilder part(uint16_t no, uint16_t count, const std::string& prefix) {
  GgufBuilder b;
  b.u16("split.no", no).u16("split.count", count).i32("split.tensors.count", 6);
  for (const char* name : {"x", "y"}) b.tensor(prefix + name, WeightType::F32, {2}, std::vector<float>{1, 2});
  return b;
}

TEST_F(Gguf, SplitSet) {
  const auto name = [](int i) { return fmt::format("m-0000{}-of-00003.gguf", i); };
  const std::string first = write(part(0, 3, "a").text("general.name", "s").bytes(), name(1));
  const auto open_first = [&] { GgufFile::open(first); };
  EXPECT_TRUE(error_of(open_first, ErrorCode::io)
                  .starts_with("m-00001-of-00003.gguf: is split, and all its parts must lie beside it: "));
  const std::string second = write(part(1, 3, "b").bytes(), name(2));
  write(part(2, 3, "c").bytes(), name(3));
  const GgufFile file = GgufFile::open(first);
  EXPECT_EQ(file.tensors().size(), 6u);
  EXPECT_EQ(file.tensors()[3].name, "by");
  EXPECT_EQ(file.parts().size(), 3u);
  EXPECT_EQ(file.get_string("general.name"), "s");
  EXPECT_EQ(error_of([&] { GgufFile::open(second); }),
            "m-00002-of-00003.gguf: is part 2 of a split set of 3: give the "
            "first one, which ends in -00001-of-00003.gguf");
  write(part(2, 3, "b").bytes(), name(3));
  EXPECT_EQ(error_of(open_first), name(1) + ": tensor 'bx' is in two parts of the split set");
  write(part(1, 3, "c").bytes(), name(3));
  EXPECT_EQ(error_of(open_first),
            name(3) + ": split.no is 1 and split.count is 3, and by the file's name must be 2 and 3");
  write(GgufBuilder().bytes(), name(3));
  EXPECT_EQ(
      error_of(open_first),
      name(3) + ": split.no is missing and split.count is missing, and by the file's name must be 2 and 3");
  GgufBuilder last;
  last.u16("split.no", 2).u16("split.count", 3);
  write(last.bytes(), name(3));
  EXPECT_EQ(error_of(open_first), name(1) + ": split.tensors.count is 6, and the 3 parts hold 4 tensors");
  const std::string renamed = write(part(0, 3, "a").bytes(), "renamed.gguf");
  EXPECT_EQ(error_of([&] { GgufFile::open(renamed); }),
            "renamed.gguf: is the first of 3 parts, so its name must end in "
            "-00001-of-00003.gguf and the others lie beside it");
}

TEST_F(Gguf, MergedSetsAreOneFile) {
  for (const uint16_t count : {uint16_t{0}, uint16_t{1}}) {
    const GgufFile file = open(GgufBuilder().u16("split.no", 0).u16("split.count", count));
    EXPECT_EQ(file.parts().size(), 1u);
  }
}

// Reads everything that a successful open promises.
void touch(const GgufFile& file) {
  uint64_t sum = 0;
  for (const auto& [key, value] : file.metadata()) {
    if (const auto* array = std::get_if<std::shared_ptr<GgufArray>>(&value)) sum += (*array)->values().size();
  }
  for (const GgufTensor& tensor : file.tensors()) {
    for (uint64_t i = 0; i < tensor.n_bytes; ++i) sum += std::to_integer<uint64_t>(tensor.data[i]);
  }
  EXPECT_GT(sum + 1, 0u);
}

TEST_F(Gguf, EveryCutIsRefused) {
  const std::string whole = sample().bytes();
  const size_t padding = 32 - 144 % 32;  // behind the last tensor
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::string error = error_of(whole.substr(0, n));
    if (n < whole.size() - padding) {
      ASSERT_NE(error, "no error") << n;
    }
  }
}

TEST_F(Gguf, RandomDamageNeverCrashes) {
  const std::string whole = sample().bytes();
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 1 + round % 3; ++i)
      damaged[random() % damaged.size()] ^= static_cast<char>(1u << random() % 8);
    try {
      touch(GgufFile::open(write(damaged)));
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.message().find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace logitgate::testing
