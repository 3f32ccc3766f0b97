// Attention on the GPU, of both phases: right within its rounding, causal, and its bits fixed by position
// alone.
// Contract: bounds follow from the chains: a score errs by head_dim · epsilon · Σ|q||k|, which moves a weight
// by that share; with rounded operands the share is theirs.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/gpu_ops.h"
#include "tests/support/random_values.h"
#include "tests/support/reference_ops.h"

namespace logitgate::testing {
namespace {

struct Record {
  std::vector<double> q, k, v;
  size_t n_tokens = 0;
};

Record random_record(const AttentionShape& shape, size_t n_tokens, uint64_t seed) {
  RandomValues random(seed);
  const auto draw = [&](size_t n) {
    const auto narrow = random.normals<float>(n);
    return std::vector<double>(narrow.begin(), narrow.end());
  };
  const size_t d = static_cast<size_t>(shape.head_dim);
  Record r;
  r.n_tokens = n_tokens;
  r.q = draw(n_tokens * static_cast<size_t>(shape.n_head) * d);
  r.k = draw(n_tokens * static_cast<size_t>(shape.n_head_kv) * d);
  r.v = draw(n_tokens * static_cast<size_t>(shape.n_head_kv) * d);
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

std::vector<double> slice(const std::vector<double>& x, size_t n_cols, size_t first, size_t n) {
  const auto begin = x.begin() + static_cast<std::ptrdiff_t>(first * n_cols);
  return {begin, begin + static_cast<std::ptrdiff_t>(n * n_cols)};
}

void append(std::vector<double>& to, const std::vector<double>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Tokens [first, first + n) of a record, as one piece of a batch.
struct Part {
  size_t record;
  size_t first;
  size_t n;
};
void run_parts(GpuOps& ops, const AttentionShape& shape, const std::vector<Record>& records, Phase phase,
               const std::vector<Part>& parts, std::vector<std::vector<double>>& out) {
  const size_t d = static_cast<size_t>(shape.head_dim);
  const size_t n_q = static_cast<size_t>(shape.n_head) * d, n_kv = static_cast<size_t>(shape.n_head_kv) * d;
  TokenBatch batch;
  batch.phase = phase;
  std::vector<double> q, k, v;
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
  ops.drop();
}

void prepare(GpuOps& ops, const AttentionShape& shape, const std::vector<Record>& records) {
  ops.use_cache({2, shape.n_head_kv, shape.head_dim});
  for (size_t r = 0; r < records.size(); ++r)
    ops.cache().reserve(static_cast<int32_t>(r), static_cast<int32_t>(records[r].n_tokens));
}

std::vector<double> run_record(GpuOps& ops, const AttentionShape& shape, const Record& record, Phase phase,
                               size_t chunk) {
  const std::vector<Record> records = {record};
  prepare(ops, shape, records);
  std::vector<std::vector<double>> out(1);
  const size_t step = phase == Phase::decode ? 1 : chunk;
  for (size_t first = 0; first < record.n_tokens; first += step)
    run_parts(ops, shape, records, phase, {{0, first, std::min(step, record.n_tokens - first)}}, out);
  return out[0];
}

double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double v : x) most = std::max(most, std::fabs(v));
  return most;
}

void expect_attention(GpuOps& ops, Phase phase, const AttentionShape& shape, size_t n_tokens) {
  const Record record = random_record(shape, n_tokens, 41);
  const auto got = run_record(ops, shape, record, phase, n_tokens);
  const auto want = reference::attention(record.q, record.k, record.v, shape, 0);
  const double q_max = std::max(largest(record.q), largest(record.k));
  const double d = shape.head_dim;
  const Precision p = ops->precision();
  const double eps = storage_epsilon(p);
  const double score = d * q_max * q_max * shape.scale;
  const double share =
      (score * d / 4 + static_cast<double>(n_tokens) + 16) * eps + (score / 2 + 2) * operand_epsilon(p);
  const std::vector<double> bound(got.size(), 2 * share * largest(record.v));
  expect_close(got, want, bound,
               fmt::format("{} {} heads {}/{} of {} T={}", precision_name(p),
                           phase == Phase::prefill ? "prefill" : "decode", shape.n_head, shape.n_head_kv,
                           shape.head_dim, n_tokens));
}

TEST(GpuAttention, AgreesWithTheReference) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    GpuOps ops(precision);
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      for (const int32_t head_dim : {2, 6, 10, 16, 34, 64, 80, 128, 192, 256})
        for (const size_t n_tokens : {1, 3, 33, 97})
          if (take_one_of(7)) expect_attention(ops, phase, shape_of(2, 1, head_dim), n_tokens);
      expect_attention(ops, phase, shape_of(4, 4, 32), 65);
      expect_attention(ops, phase, shape_of(6, 2, 40), 257);
      expect_attention(ops, phase, shape_of(16, 1, 8), 130);
      expect_attention(ops, phase, shape_of(5, 1, 128), 300);
    }
  }
}

TEST(GpuAttention, PrefillBitsDoNotDependOnChunks) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    GpuOps ops(precision);
    for (const AttentionShape& shape : {shape_of(4, 2, 20), shape_of(3, 1, 128), shape_of(2, 2, 256)}) {
      const Record record = random_record(shape, 201, 43);
      const auto whole = run_record(ops, shape, record, Phase::prefill, 201);
      for (const size_t chunk : {1, 2, 7, 16, 17, 64, 95, 96, 97, 200}) {
        if (!take_one_of(11)) continue;
        ASSERT_EQ(run_record(ops, shape, record, Phase::prefill, chunk) == whole, true)
            << precision_name(precision) << " chunk " << chunk;
      }
    }
  }
}

TEST(GpuAttention, BitsDoNotDependOnOtherRecords) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    GpuOps ops(precision);
    const AttentionShape shape = shape_of(6, 2, 64);
    std::vector<Record> records;
    for (const size_t n : {5, 130, 1, 33}) records.push_back(random_record(shape, n, 100 + n));
    std::vector<std::vector<double>> alone;
    for (const auto& r : records) alone.push_back(run_record(ops, shape, r, Phase::prefill, r.n_tokens));
    prepare(ops, shape, records);
    std::vector<std::vector<double>> packed(records.size());
    run_parts(ops, shape, records, Phase::prefill, {{2, 0, 1}, {1, 0, 50}, {3, 0, 33}}, packed);
    run_parts(ops, shape, records, Phase::prefill, {{0, 0, 5}, {1, 50, 80}}, packed);
    EXPECT_EQ(packed == alone, true) << precision_name(precision);
  }
}

TEST(GpuAttention, DecodeBitsDoNotDependOnLanes) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    GpuOps ops(precision);
    const AttentionShape shape = shape_of(6, 1, 36);  // a group of more than one pass
    std::vector<Record> records;
    for (const size_t n : {60, 41, 300}) records.push_back(random_record(shape, n, 200 + n));
    std::vector<std::vector<double>> alone;
    for (const auto& r : records) alone.push_back(run_record(ops, shape, r, Phase::decode, 1));
    prepare(ops, shape, records);
    std::vector<std::vector<double>> lanes(records.size());
    for (size_t t = 0; t < 300; ++t) {
      std::vector<Part> parts;
      for (size_t r = 0; r < records.size(); ++r)
        if (t < records[r].n_tokens) parts.push_back({r, t, 1});
      std::rotate(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(t % parts.size()), parts.end());
      run_parts(ops, shape, records, Phase::decode, parts, lanes);
    }
    EXPECT_EQ(lanes == alone, true) << precision_name(precision);
  }
}

// What a later token holds, NaN even, changes no bit of an earlier one.
TEST(GpuAttention, IsCausal) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    GpuOps ops(precision);
    const AttentionShape shape = shape_of(2, 1, 12);
    const Record record = random_record(shape, 140, 53);
    const auto clean = run_record(ops, shape, record, Phase::prefill, 140);
    for (const size_t poisoned : {7, 95, 96, 139}) {
      Record bad = record;
      for (size_t i = poisoned * 12; i < (poisoned + 1) * 12; ++i) {
        bad.k[i] = std::numeric_limits<double>::quiet_NaN();
        bad.v[i] = std::numeric_limits<double>::infinity();
      }
      const auto y = run_record(ops, shape, bad, Phase::prefill, 140);
      EXPECT_EQ(slice(y, 24, 0, poisoned) == slice(clean, 24, 0, poisoned), true)
          << precision_name(precision) << " " << poisoned;
      for (size_t i = poisoned * 24; i < y.size(); ++i)
        ASSERT_TRUE(std::isnan(y[i])) << precision_name(precision) << " " << poisoned;
    }
  }
}

TEST(GpuAttention, ExtremeScores) {
  LOGITGATE_NEEDS_GPU();
  for (const Precision precision : kGpuPrecisions) {
    GpuOps ops(precision);
    const AttentionShape shape = shape_of(1, 1, 4);
    Record record = random_record(shape, 120, 59);
    for (double& x : record.q) x *= 1000;  // one key takes all the weight
    for (const Phase phase : {Phase::prefill, Phase::decode})
      for (const double x : run_record(ops, shape, record, phase, 120)) ASSERT_TRUE(std::isfinite(x));
  }
}

// f64 on the GPU and on the CPU agree to rounding over a long record.
TEST(GpuAttention, LongRecordsAgreeWithTheCpu) {
  LOGITGATE_NEEDS_GPU();
  const AttentionShape shape = shape_of(2, 1, 64);
  const size_t n_tokens = 4096;
  const Record record = random_record(shape, n_tokens, 61);
  GpuOps ops(Precision::f64);
  const auto gpu = run_record(ops, shape, record, Phase::prefill, n_tokens);
  BackendOptions options;
  options.device = "cpu";
  options.precision = Precision::f64;
  const auto cpu = make_backend(options);
  const auto cache = cpu->make_kv_cache({2, 1, 64});
  cache->reserve(0, static_cast<int32_t>(n_tokens));
  TokenBatch batch;
  batch.tokens.resize(n_tokens);
  batch.pieces.push_back({0, 0, static_cast<int32_t>(n_tokens), 0});
  cpu->begin(batch, *cache);
  std::vector<double> q = record.q, k = record.k, v = record.v, y(q.size());
  const auto rows = static_cast<int64_t>(n_tokens);
  cpu->store_kv(1, {k.data(), rows, 64}, {v.data(), rows, 64});
  cpu->attention({y.data(), rows, 128}, {q.data(), rows, 128}, shape);
  double worst = 0;
  for (size_t i = 0; i < y.size(); ++i)
    worst = std::max(worst, std::fabs(y[i] - gpu[i]) / std::max(1.0, std::fabs(y[i])));
  std::printf("f64 GPU against CPU, T = 4096: %.3g\n", worst);
  EXPECT_TRUE(worst <= 1e-9) << worst;
}

}  // namespace
}  // namespace logitgate::testing
