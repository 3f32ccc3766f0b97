// Attention of both phases: right within its rounding, causal, and its bits fixed by position alone.
// Contract: bounds follow from the chains: scores err by head_dim · epsilon · Σ|q||k|, which moves a weight by that share.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cpu/simd.h"
#include "tests/support/backend_ops.h"
#include "tests/support/random_values.h"
#include "tests/support/reference_ops.h"

namespace logitgate::testing {
namespace {

template <class T>
class Attention : public ::testing::Test {};
using Elements = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Attention, Elements);

// One record's operands.
template <class T>
struct Record {
  std::vector<T> q, k, v;
  size_t n_tokens = 0;
};

template <class T>
Record<T> random_record(const AttentionShape& shape, size_t n_tokens, uint64_t seed) {
  RandomValues random(seed);
  const size_t d = static_cast<size_t>(shape.head_dim);
  Record<T> r;
  r.n_tokens = n_tokens;
  r.q = random.normals<T>(n_tokens * static_cast<size_t>(shape.n_head) * d);
  r.k = random.normals<T>(n_tokens * static_cast<size_t>(shape.n_head_kv) * d);
  r.v = random.normals<T>(n_tokens * static_cast<size_t>(shape.n_head_kv) * d);
  return r;
}

AttentionShape shape_of(int32_t n_head, int32_t n_head_kv, int32_t head_dim) {
  AttentionShape s;
  s.layer = 1;
  s.n_head = n_head;
  s.n_head_kv = n_head_kv;
  s.head_dim = head_dim;
  s.scale = 1 / std::sqrt(static_cast<double>(head_dim));
  return s;
}

template <class T>
std::vector<T> slice(const std::vector<T>& x, size_t n_cols, size_t first, size_t n) {
  const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first * n_cols);
  return std::vector<T>(begin, begin + static_cast<std::ptrdiff_t>(n * n_cols));
}

template <class T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Runs tokens [first, first + n) of each record, one piece a record, as one batch; appends each record's output to out.
struct Part {
  size_t record;
  size_t first;
  size_t n;
};
template <class T>
void run_parts(BackendOps<T>& ops, const AttentionShape& shape, const std::vector<Record<T>>& records,
               Phase phase, const std::vector<Part>& parts, std::vector<std::vector<T>>& out) {
  const size_t d = static_cast<size_t>(shape.head_dim);
  const size_t n_q = static_cast<size_t>(shape.n_head) * d, n_kv = static_cast<size_t>(shape.n_head_kv) * d;
  TokenBatch batch;
  batch.phase = phase;
  std::vector<T> q, k, v;
  for (const Part& p : parts) {
    batch.pieces.push_back({static_cast<int32_t>(p.record), batch.n_tokens(), static_cast<int32_t>(p.n),
                            static_cast<int32_t>(p.first)});
    batch.tokens.resize(batch.tokens.size() + p.n);
    append(q, slice(records[p.record].q, n_q, p.first, p.n));
    append(k, slice(records[p.record].k, n_kv, p.first, p.n));
    append(v, slice(records[p.record].v, n_kv, p.first, p.n));
  }
  const size_t n_tokens = batch.tokens.size();
  ops->begin(batch, ops.cache());
  ops->store_kv(shape.layer, ops.upload(k, n_tokens), ops.upload(v, n_tokens));
  const Activation y = ops.poisoned(n_tokens, n_q);
  ops->attention(y, ops.upload(q, n_tokens), shape);
  const auto values = ops.values(y);
  size_t at = 0;
  for (const Part& p : parts) {
    append(out[p.record], slice(values, n_q, at, p.n));
    at += p.n;
  }
}

template <class T>
void prepare(BackendOps<T>& ops, const AttentionShape& shape, const std::vector<Record<T>>& records) {
  ops.use_cache({2, shape.n_head_kv, shape.head_dim});
  for (size_t r = 0; r < records.size(); ++r) {
    ops.cache().reserve(static_cast<int32_t>(r), static_cast<int32_t>(records[r].n_tokens));
  }
}

// The whole of one record: prefill in chunks of `chunk` tokens, or decode token by token.
template <class T>
std::vector<T> run_record(BackendOps<T>& ops, const AttentionShape& shape, const Record<T>& record,
                          Phase phase, size_t chunk) {
  const std::vector<Record<T>> records = {record};
  prepare(ops, shape, records);
  std::vector<std::vector<T>> out(1);
  const size_t step = phase == Phase::decode ? 1 : chunk;
  for (size_t first = 0; first < record.n_tokens; first += step) {
    run_parts(ops, shape, records, phase, {{0, first, std::min(step, record.n_tokens - first)}}, out);
  }
  return out[0];
}

template <class T>
void expect_attention(Phase phase, const AttentionShape& shape, size_t n_tokens) {
  const Record<T> record = random_record<T>(shape, n_tokens, 41);
  BackendOps<T> ops;
  const auto got = run_record(ops, shape, record, phase, n_tokens);
  const auto want = reference::attention(widen(record.q), widen(record.k), widen(record.v), shape, 0);
  double q_max = 0, v_max = 0;
  for (const T x : record.q) q_max = std::max(q_max, std::fabs(static_cast<double>(x)));
  for (const T x : record.k) q_max = std::max(q_max, std::fabs(static_cast<double>(x)));
  for (const T x : record.v) v_max = std::max(v_max, std::fabs(static_cast<double>(x)));
  // A score errs by at most d · eps · Σ|q||k| · scale, a weight by that share and those of exp and the chain over keys.
  const double d = shape.head_dim;
  const double share = d * q_max * q_max * shape.scale * d / 4 + static_cast<double>(n_tokens) + 16;
  const std::vector<double> bound(got.size(), 2 * share * kEpsilon<T> * v_max);
  expect_near(got, want, bound,
              fmt::format("heads {}/{} of {} T={}", shape.n_head, shape.n_head_kv, shape.head_dim, n_tokens));
}

TYPED_TEST(Attention, AgreesWithTheReference) {
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    for (const int32_t head_dim : {2, 6, 10, 16, 34, 64, 128}) {
      for (const size_t n_tokens : {1, 3, 31, 33, 97})
        expect_attention<TypeParam>(phase, shape_of(2, 1, head_dim), n_tokens);
    }
    expect_attention<TypeParam>(phase, shape_of(4, 4, 32), 65);
    expect_attention<TypeParam>(phase, shape_of(6, 2, 40), 257);
    expect_attention<TypeParam>(phase, shape_of(16, 1, 8), 130);
  }
}

TYPED_TEST(Attention, PrefillBitsDoNotDependOnChunks) {
  using T = TypeParam;
  const AttentionShape shape = shape_of(4, 2, 20);
  const Record<T> record = random_record<T>(shape, 201, 43);
  BackendOps<T> ops;
  const auto whole = run_record(ops, shape, record, Phase::prefill, 201);
  for (const size_t chunk : {1, 2, 7, 16, 17, 64, 95, 96, 97, 200}) {
    ASSERT_EQ(run_record(ops, shape, record, Phase::prefill, chunk), whole) << "chunk " << chunk;
  }
}

TYPED_TEST(Attention, BitsDoNotDependOnOtherRecords) {
  using T = TypeParam;
  const AttentionShape shape = shape_of(6, 2, 24);
  std::vector<Record<T>> records;
  for (const size_t n : {5, 130, 1, 33}) records.push_back(random_record<T>(shape, n, 100 + n));
  BackendOps<T> ops;
  std::vector<std::vector<T>> alone;
  for (const auto& r : records) alone.push_back(run_record(ops, shape, r, Phase::prefill, r.n_tokens));

  prepare(ops, shape, records);
  std::vector<std::vector<T>> packed(records.size());
  run_parts(ops, shape, records, Phase::prefill, {{2, 0, 1}, {1, 0, 50}, {3, 0, 33}}, packed);
  run_parts(ops, shape, records, Phase::prefill, {{0, 0, 5}, {1, 50, 80}}, packed);
  EXPECT_EQ(packed, alone);
}

TYPED_TEST(Attention, DecodeBitsDoNotDependOnLanes) {
  using T = TypeParam;
  const AttentionShape shape = shape_of(4, 2, 18);
  std::vector<Record<T>> records;
  for (const size_t n : {60, 41, 97}) records.push_back(random_record<T>(shape, n, 200 + n));
  BackendOps<T> ops;
  std::vector<std::vector<T>> alone;
  for (const auto& r : records) alone.push_back(run_record(ops, shape, r, Phase::decode, 1));

  prepare(ops, shape, records);
  std::vector<std::vector<T>> lanes(records.size());
  for (size_t t = 0; t < 97; ++t) {
    std::vector<Part> parts;
    for (size_t r = 0; r < records.size(); ++r) {
      if (t < records[r].n_tokens) parts.push_back({r, t, 1});
    }
    std::rotate(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(t % parts.size()), parts.end());
    run_parts(ops, shape, records, Phase::decode, parts, lanes);
  }
  EXPECT_EQ(lanes, alone);
}

TYPED_TEST(Attention, BitsDoNotDependOnThreadsOrSimdLevel) {
  using T = TypeParam;
  for (const AttentionShape& shape : {shape_of(4, 2, 20), shape_of(3, 3, 64)}) {
    const Record<T> record = random_record<T>(shape, 131, 47);
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      std::vector<T> first;
      for (const int threads : {1, 2, 3}) {
        BackendOps<T> ops(threads);
        for (const char* level : {"", "avx2"}) {
          select_simd(level);
          const auto y = run_record(ops, shape, record, phase, 131);
          if (first.empty()) first = y;
          ASSERT_EQ(y, first) << threads << " threads, level '" << level << "'";
        }
      }
      select_simd();
    }
  }
}

// What a later token holds, NaN even, changes no bit of an earlier one.
TYPED_TEST(Attention, IsCausal) {
  using T = TypeParam;
  const AttentionShape shape = shape_of(2, 1, 12);
  Record<T> record = random_record<T>(shape, 140, 53);
  BackendOps<T> ops;
  const auto clean = run_record(ops, shape, record, Phase::prefill, 140);
  for (const size_t poisoned : {7, 95, 96, 139}) {
    Record<T> bad = record;
    for (size_t i = poisoned * 12; i < (poisoned + 1) * 12; ++i) {
      if (poisoned != 95) bad.k[i] = std::numeric_limits<T>::quiet_NaN();
      if (poisoned != 96) bad.v[i] = std::numeric_limits<T>::quiet_NaN();
    }
    const auto y = run_record(ops, shape, bad, Phase::prefill, 140);
    EXPECT_EQ(slice(y, 24, 0, poisoned), slice(clean, 24, 0, poisoned));
    for (size_t i = poisoned * 24; i < y.size(); ++i) ASSERT_TRUE(std::isnan(y[i])) << poisoned << " " << i;
  }
}

TYPED_TEST(Attention, ExtremeScores) {
  using T = TypeParam;
  const AttentionShape shape = shape_of(1, 1, 4);
  Record<T> record = random_record<T>(shape, 120, 59);
  for (T& x : record.q) x *= T(1000);  // one key takes all the weight
  BackendOps<T> ops;
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    const auto y = run_record(ops, shape, record, phase, 120);
    for (const T x : y) ASSERT_TRUE(std::isfinite(x));
  }
}

}  // namespace
}  // namespace logitgate::testing
