// The parts of block coding on their own: byte planes, packed exponents, half floats, digest sets, the spill file.
// Contract: each against a scalar restatement of its definition, with lengths that are no multiple of a vector.
#include <gtest/gtest.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "formats/byte_planes.h"
#include "formats/digest_set.h"
#include "formats/exponent_pack.h"
#include "formats/narrow_floats.h"
#include "formats/spill_file.h"
#include "formats/stream_hash.h"
#include "formats/topk_rows.h"

namespace logitgate {
namespace {

template <class T>
void check_planes() {
  std::mt19937_64 random(1);
  for (const size_t n : {size_t{1}, size_t{2}, size_t{31}, size_t{64}, size_t{1000}, size_t{4097}}) {
    for (const bool rotate : {false, true}) {
      std::vector<T> numbers(n), back(n);
      for (T& x : numbers) x = static_cast<T>(random());
      std::vector<uint8_t> first(n, 0xAA), rest(n * (sizeof(T) - 1), 0xAA);
      split_planes(numbers.data(), n, first.data(), rest.data(), rotate);
      for (size_t i = 0; i < n; ++i) {
        const T u = rotate ? std::rotl(numbers[i], 1) : numbers[i];
        for (size_t p = 0; p < sizeof(T); ++p) {
          const uint8_t byte = p == 0 ? first[i] : rest[(p - 1) * n + i];
          ASSERT_EQ(byte, static_cast<uint8_t>(u >> (8 * (sizeof(T) - 1 - p)))) << n << " " << i << " " << p;
        }
      }
      merge_planes(first.data(), rest.data(), n, back.data(), rotate);
      ASSERT_EQ(back, numbers);
    }
  }
}

TEST(BytePlanes, AreTheBytesMostSignificantFirst) {
  check_planes<uint16_t>();
  check_planes<uint32_t>();
  check_planes<uint64_t>();
}

TEST(ExponentPack, ComesBackWithEscapesAnywhere) {
  std::mt19937 random(2);
  for (const size_t n :
       {size_t{1}, size_t{2}, size_t{3}, size_t{127}, size_t{128}, size_t{1001}, size_t{20000}}) {
    for (const unsigned escape_every : {1u, 7u, 500u, 0u}) {
      std::vector<uint8_t> exponents(n), packed((n + 1) / 2), back(n);
      for (uint8_t& e : exponents) {
        const bool escape = escape_every != 0 && random() % escape_every == 0;
        e = static_cast<uint8_t>(escape ? random() : 130 - random() % 12);
      }
      const uint8_t top = choose_top(exponents.data(), n);
      const size_t n_escapes = pack_exponents(exponents.data(), n, top, packed.data());
      size_t expected = 0;
      for (const uint8_t e : exponents) expected += static_cast<uint8_t>(top - e) >= 15 ? 1 : 0;
      ASSERT_EQ(n_escapes, expected);
      std::vector<uint8_t> escapes(n_escapes);
      collect_escapes(exponents.data(), n, packed.data(), escapes.data());
      unpack_exponents(packed.data(), n, top, back.data());
      ASSERT_TRUE(place_escapes(packed.data(), n, escapes.data(), n_escapes, back.data()));
      ASSERT_EQ(back, exponents);
      ASSERT_FALSE(place_escapes(packed.data(), n, escapes.data(), n_escapes + 1, back.data()));
      if (n_escapes > 0) {
        ASSERT_FALSE(place_escapes(packed.data(), n, escapes.data(), n_escapes - 1, back.data()));
      }
    }
  }
}

TEST(ExponentPack, TopLeavesFewEscapes) {
  std::vector<uint8_t> exponents(100000);
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (uint8_t& e : exponents) e = static_cast<uint8_t>(std::bit_cast<uint32_t>(normal(random)) >> 23);
  for (size_t i = 0; i < exponents.size(); i += 100) exponents[i] = 255;  // a masked column
  std::vector<uint8_t> packed(exponents.size() / 2);
  const uint8_t top = choose_top(exponents.data(), exponents.size());
  EXPECT_LT(pack_exponents(exponents.data(), exponents.size(), top, packed.data()), exponents.size() / 64);
}

TEST(NarrowFloats, EveryHalfComesBack) {
  std::vector<uint16_t> halves(65536), back(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<float> floats(65536);
  widen_f16(halves.data(), halves.size(), floats.data());
  EXPECT_EQ(floats[0x3C00], 1.0f);
  EXPECT_EQ(floats[0x0001], 0x1p-24f);
  EXPECT_EQ(floats[0x7BFF], 65504.0f);
  narrow_to_f16(floats.data(), floats.size(), back.data());
  EXPECT_EQ(back, halves);
  widen_bf16(halves.data(), halves.size(), floats.data());
  EXPECT_EQ(floats[0x3F80], 1.0f);
  narrow_to_bf16(floats.data(), floats.size(), back.data());
  EXPECT_EQ(back, halves);
}

TEST(NarrowFloats, NaNsStayNaNs) {
  std::vector<float> floats;
  for (uint32_t payload = 1; payload < (1u << 23); payload += payload < 100 ? 1 : 4099) {
    floats.push_back(std::bit_cast<float>(0x7F800000u | payload));
    floats.push_back(std::bit_cast<float>(0xFF800000u | payload));
  }
  std::vector<uint16_t> halves(floats.size());
  std::vector<float> back(floats.size());
  narrow_to_f16(floats.data(), floats.size(), halves.data());
  widen_f16(halves.data(), halves.size(), back.data());
  for (const float x : back) ASSERT_TRUE(std::isnan(x));
  narrow_to_bf16(floats.data(), floats.size(), halves.data());
  widen_bf16(halves.data(), halves.size(), back.data());
  for (const float x : back) ASSERT_TRUE(std::isnan(x));
}

TEST(TopkRows, LogSumExpIsThatOfExactArithmetic) {
  std::mt19937 random(6);
  for (const size_t n : {size_t{1}, size_t{7}, size_t{8}, size_t{9}, size_t{1000}, size_t{151936}}) {
    for (const double spread : {1e-6, 1.0, 30.0, 400.0, 3000.0}) {
      std::normal_distribution<double> normal(3.0, spread);
      std::vector<double> row(n);
      for (double& x : row) x = normal(random);
      long double top = static_cast<long double>(*std::max_element(row.begin(), row.end())), sum = 0;
      for (const double x : row) sum += std::exp(static_cast<long double>(x) - top);
      const double expected = static_cast<double>(top + std::log(sum));
      ASSERT_NEAR(log_sum_exp(std::span<const double>(row)), expected, 8e-15 * (1.0 + std::fabs(expected)));
    }
  }
}

TEST(DigestSet, FindsWhatCameTwice) {
  DigestSet set;
  for (int i = 0; i < 100000; ++i) ASSERT_TRUE(set.insert("id-" + std::to_string(i)));
  for (int i = 0; i < 100000; i += 977) ASSERT_FALSE(set.insert("id-" + std::to_string(i)));
  EXPECT_EQ(set.size(), 100000u);
}

TEST(StreamHash, IsTheLibrarysHoweverItIsCut) {
  std::vector<uint8_t> bytes(70000);
  std::mt19937 random(8);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  StreamHash hash;
  for (const size_t n : {size_t{0}, size_t{1}, size_t{240}, size_t{241}, size_t{1024}, size_t{70000}}) {
    hash.reset();
    for (size_t at = 0; at < n;) {
      const size_t piece = std::min<size_t>(n - at, 1 + random() % 3000);
      hash.update(bytes.data() + at, piece);
      at += piece;
    }
    EXPECT_EQ(hash.digest(), XXH3_64bits(bytes.data(), n)) << n;
  }
}

TEST(SpillFile, GivesBackWhatItTook) {
  SpillFile spill("");
  std::vector<std::pair<uint64_t, std::vector<uint8_t>>> kept;
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    if (round % 3 == 2) {
      ByteBuffer back;
      const size_t which = random() % kept.size();
      spill.take(kept[which].first, kept[which].second.size(), back);
      ASSERT_EQ(std::vector<uint8_t>(back.data(), back.data() + back.size()), kept[which].second);
      kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(which));
      continue;
    }
    std::vector<uint8_t> bytes(1 + random() % 20000);
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
    const uint64_t at = spill.put(bytes);
    kept.emplace_back(at, std::move(bytes));
  }
}

}  // namespace
}  // namespace logitgate
