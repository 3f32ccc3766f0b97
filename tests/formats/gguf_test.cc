// Tests the GGUF reader on the golden models, on built files of every kind, and on damaged ones.
// Contract: a damaged file gives an Error or, where the damage is to values alone, a success; never a crash.
#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lib/error.h"

namespace logitgate {
namespace {

const std::string kGolden = std::string(TESTDATA) + "/golden/";

TEST(Gguf, GoldenModel) {
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
  const GgufTensor* tensor = file.find("token_embd.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->type, WeightType::Q8_0);
  EXPECT_EQ(tensor->ne, (std::vector<uint64_t>{128, 272}));
  EXPECT_EQ(tensor->n_bytes, 128u / 32 * 34 * 272);
  EXPECT_EQ(file.find("nothing"), nullptr);
}

}  // namespace
}  // namespace logitgate
