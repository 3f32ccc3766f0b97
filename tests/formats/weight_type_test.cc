// Tests the table of weight types and the exact values of the computing ones.
// Contract: decoded values are compared by their bits with values derived from the formats' definitions.
#include "formats/quant/weight_type.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "formats/quant/all.h"
#include "lib/error.h"

namespace logitgate {
namespace {

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

// The value of a half from its definition, in double.
double f16_value(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  double value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) {
    value =
        fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return (half & 0x8000) != 0 ? -value : value;
}

TEST(WeightType, EveryHalfDecodesExactly) {
  const WeightTypeInfo& info = weight_type_info(WeightType::F16);
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto half = static_cast<uint16_t>(h);
    float got = 0;
    info.dequantize_row(&half, &got, 1);
    const double want = f16_value(half);
    if (std::isnan(want)) {
      const uint32_t quiet = ((h & 0x8000) << 16) | 0x7fc00000 | ((h & 1023) << 13);
      ASSERT_EQ(bits_of(got), quiet) << h;
    } else {
      ASSERT_EQ(bits_of(got), bits_of(static_cast<float>(want))) << h;
    }
  }
}

TEST(WeightType, EveryBfloat16DecodesExactly) {
  const WeightTypeInfo& info = weight_type_info(WeightType::BF16);
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto half = static_cast<uint16_t>(h);
    uint32_t got = 0;
    float value = 0;
    info.dequantize_row(&half, &value, 1);
    std::memcpy(&got, &value, 4);
    ASSERT_EQ(got, h << 16);
  }
}

TEST(WeightType, F32IsCopied) {
  const std::vector<float> in = {0.f, -0.f, 1.5f, 1e-45f, INFINITY, -INFINITY, std::nanf("1")};
  std::vector<float> out(in.size(), 7.f);
  weight_type_info(WeightType::F32).dequantize_row(in.data(), out.data(), in.size());
  EXPECT_EQ(std::memcmp(in.data(), out.data(), in.size() * sizeof(float)), 0);
}

TEST(WeightType, Q8_0IsScaleTimesByteForEveryScale) {
  const WeightTypeInfo& info = weight_type_info(WeightType::Q8_0);
  BlockQ8_0 block{};
  std::vector<float> out(32);
  for (uint32_t h = 0; h < 65536; h += 7) {
    block.d = static_cast<uint16_t>(h);
    for (int i = 0; i < 32; ++i)
      block.qs[i] = static_cast<int8_t>(static_cast<int>(h / 7 + static_cast<uint32_t>(i) * 37) % 256 - 128);
    info.dequantize_row(&block, out.data(), 32);
    for (int i = 0; i < 32; ++i) {
      const double want = f16_value(block.d) * block.qs[i];
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(out[static_cast<size_t>(i)]));
      } else {
        ASSERT_EQ(bits_of(out[static_cast<size_t>(i)]), bits_of(static_cast<float>(want))) << h << " " << i;
      }
    }
  }
}

TEST(WeightType, RowsOfManyBlocks) {
  std::mt19937 random(1);
  std::vector<BlockQ8_0> blocks(5);
  for (BlockQ8_0& block : blocks) {
    block.d = static_cast<uint16_t>(random() % 0x7c00);
    for (int8_t& q : block.qs) q = static_cast<int8_t>(random() % 256);
  }
  std::vector<float> out(160, NAN);
  weight_type_info(WeightType::Q8_0).dequantize_row(blocks.data(), out.data(), out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_EQ(bits_of(out[i]), bits_of(weight_at(blocks[i / 32], static_cast<int>(i % 32))));
  }
}

TEST(WeightType, TableIsWhole) {
  std::set<std::string_view> names;
  for (uint32_t id = 0; id < 100; ++id) {
    const WeightTypeInfo* info = find_weight_type(id);
    if (info == nullptr) continue;
    EXPECT_EQ(static_cast<uint32_t>(info->type), id);
    EXPECT_TRUE(names.insert(info->name).second);
    EXPECT_GT(info->block_size, 0u);
    EXPECT_GT(info->block_bytes, 0u);
    EXPECT_EQ(info->computes, info->dequantize_row != nullptr);
    EXPECT_EQ(&weight_type_info(info->type), info);
  }
  EXPECT_EQ(names.size(), 34u);
  for (uint32_t removed : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 63u, 64u, 0xffffffffu}) {
    EXPECT_EQ(find_weight_type(removed), nullptr) << removed;
  }
  EXPECT_THROW(weight_type_info(static_cast<WeightType>(4)), Error);
}

}  // namespace
}  // namespace logitgate
