// Speed of the CPU kernels, each beside what bounds it: a loop of pure FMA, or a streaming read.
// Contract: results are checked against the reference before they are timed. Usage: kernel_bench [--benchmark_filter=…]; the
// counters are GFLOP/s or GB/s, and compare only within one run.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kernels/backends.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/thread_pool.h"
#include "tests/support/random_values.h"
#include "tests/support/reference_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/kernel_bench.cc"
#include <hwy/foreach_target.h>
// after foreach_target
#include "kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {

// 24 chains (12 where there are 16 registers) of n FMA each
float fma_chains(size_t n) {
  constexpr size_t kChains = HWY_TARGET == HWY_AVX3 ? 24 : 12;
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> acc[kChains];
  LOGITGATE_UNROLL
  for (size_t i = 0; i < kChains; ++i) acc[i] = hn::Set(d, static_cast<float>(i));
  const auto a = hn::Set(d, 0.9999f), b = hn::Set(d, 0.0001f);
  for (size_t k = 0; k < n; ++k) {
    LOGITGATE_UNROLL
    for (size_t i = 0; i < kChains; ++i) acc[i] = hn::MulAdd(acc[i], a, b);
  }
  auto sum = acc[0];
  LOGITGATE_UNROLL
  for (size_t i = 1; i < kChains; ++i) sum = hn::Add(sum, acc[i]);
  return fold_lanes(d, sum);
}
size_t fma_flops() { return 2 * (HWY_TARGET == HWY_AVX3 ? 24 : 12) * HWY_LANES(float); }

int64_t read_all(const int64_t* p, size_t n) {
  const hn::ScalableTag<int64_t> d;
  const size_t N = hn::Lanes(d);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (size_t i = 0; i + 4 * N <= n; i += 4 * N) {
    a = hn::Or(a, hn::LoadU(d, p + i));
    b = hn::Or(b, hn::LoadU(d, p + i + N));
    c = hn::Or(c, hn::LoadU(d, p + i + 2 * N));
    e = hn::Or(e, hn::LoadU(d, p + i + 3 * N));
  }
  return hn::GetLane(hn::Or(hn::Or(a, b), hn::Or(c, e)));
}

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace logitgate {
namespace {

HWY_EXPORT(fma_chains);
HWY_EXPORT(fma_flops);
HWY_EXPORT(read_all);

using benchmark::State;
constexpr size_t kWeightBytes = size_t{256}
                                << 20;  // working set of the GEMV benchmarks, past any cache's share

void set_flops(State& state, double flops_each) {
  state.counters["GFLOP/s"] = benchmark::Counter(flops_each * 1e-9 * static_cast<double>(state.iterations()),
                                                 benchmark::Counter::kIsRate);
}
void set_bytes(State& state, double bytes_each) {
  state.counters["GB/s"] = benchmark::Counter(bytes_each * 1e-9 * static_cast<double>(state.iterations()),
                                              benchmark::Counter::kIsRate);
}

int threads() {
  const char* named = std::getenv("THREADS");
  return named == nullptr ? 0 : std::atoi(named);
}

void fma_peak(State& state) {
  select_simd();
  ThreadPool pool(threads());
  constexpr size_t n = 1000000;
  for (auto _ : state) {
    pool.run(static_cast<size_t>(pool.n_threads()),
             [&](size_t, size_t) { benchmark::DoNotOptimize(HWY_DYNAMIC_DISPATCH(fma_chains)(n)); });
  }
  set_flops(state, static_cast<double>(n * HWY_DYNAMIC_DISPATCH(fma_flops)()) * pool.n_threads());
}

void read_peak(State& state) {
  select_simd();
  ThreadPool pool(threads());
  const Buffer buffer = allocate_host(kWeightBytes);
  std::memset(buffer.data(), 1, kWeightBytes);
  constexpr size_t kPart = size_t{1} << 20;
  const auto* p = static_cast<const std::byte*>(buffer.data());
  for (auto _ : state) {
    pool.run(kWeightBytes / kPart, [&](size_t part, size_t) {
      benchmark::DoNotOptimize(
          HWY_DYNAMIC_DISPATCH(read_all)(reinterpret_cast<const int64_t*>(p + part * kPart), kPart / 8));
    });
  }
  set_bytes(state, static_cast<double>(kWeightBytes));
}

std::unique_ptr<Backend> cpu(Precision precision) {
  BackendOptions options;
  options.device = "cpu";
  options.precision = precision;
  options.threads = threads();
  return make_backend(options);
}

void begin(Backend& backend, KvCache& cache, Phase phase, int32_t n_tokens) {
  TokenBatch batch;
  batch.phase = phase;
  batch.tokens.resize(static_cast<size_t>(n_tokens));
  for (int32_t t = 0; t < n_tokens; ++t) {
    if (phase == Phase::prefill && t > 0) break;
    cache.reserve(t, phase == Phase::prefill ? n_tokens : 1);
    batch.pieces.push_back({t, t, phase == Phase::prefill ? n_tokens : 1, 0});
  }
  backend.begin(batch, cache);
}

// The first rows of y against the reference; aborts the benchmark where they are off.
template <class T>
bool product_holds(State& state, const Weight& w, const std::vector<T>& x, const std::vector<T>& y) {
  Weight head = w;
  head.n_out = 3;
  const size_t n_in = static_cast<size_t>(w.n_in), n_out = static_cast<size_t>(w.n_out);
  const std::vector<double> token(x.end() - static_cast<std::ptrdiff_t>(n_in), x.end());
  const auto rows = reference::dequantise(head);
  const auto want = reference::matmul(rows, token, n_in);
  const auto size = reference::matmul(rows, token, n_in, true);
  for (size_t o = 0; o < 3; ++o) {
    const double got = static_cast<double>(y[y.size() - n_out + o]);
    if (!(std::fabs(got - want[o]) <=
          static_cast<double>(n_in) * std::numeric_limits<T>::epsilon() * size[o])) {
      state.SkipWithError("the product is wrong");
      return false;
    }
  }
  return true;
}

template <class T>
void matmul(State& state, Phase phase, WeightType type, int64_t n_in, int64_t n_out, int32_t n_tokens,
            size_t n_copies) {
  const auto backend = cpu(sizeof(T) == 8 ? Precision::f64 : Precision::f32);
  const auto cache = backend->make_kv_cache({1, 1, 2});
  begin(*backend, *cache, phase, n_tokens);
  testing::RandomTensor random = testing::random_tensor(type, n_in, n_out, 1);
  const size_t n_bytes = random.bytes.size();
  const Buffer copies = allocate_host(n_bytes * n_copies);
  auto* copy = static_cast<std::byte*>(copies.data());
  for (size_t i = 0; i < n_copies; ++i) std::memcpy(copy + i * n_bytes, random.bytes.data(), n_bytes);

  testing::RandomValues values(2);
  auto x = values.normals<T>(static_cast<size_t>(n_in) * static_cast<size_t>(n_tokens));
  std::vector<T> y(static_cast<size_t>(n_out) * static_cast<size_t>(n_tokens), std::nan(""));
  const Activation ax{x.data(), n_tokens, n_in}, ay{y.data(), n_tokens, n_out};
  Weight w = backend->load(random.tensor);
  backend->matmul(ay, w, ax);
  if (!product_holds(state, w, x, y)) return;
  size_t i = 0;
  for (auto _ : state) {
    w.data = copy + i++ % n_copies * n_bytes;
    backend->matmul(ay, w, ax);
  }
  set_flops(state, 2.0 * static_cast<double>(n_in) * static_cast<double>(n_out) * n_tokens);
  set_bytes(state, static_cast<double>(n_bytes));
}

template <class T>
void gemm(State& state, WeightType type) {
  matmul<T>(state, Phase::prefill, type, state.range(0), state.range(1), static_cast<int32_t>(state.range(2)),
            1);
}
template <class T>
void gemv(State& state, WeightType type) {
  const int64_t n_in = state.range(0), n_out = state.range(1);
  const WeightTypeInfo& info = weight_type_info(type);
  const size_t n_bytes = static_cast<size_t>(n_in * n_out) / info.block_size * info.block_bytes;
  matmul<T>(state, Phase::decode, type, n_in, n_out, static_cast<int32_t>(state.range(2)),
            kWeightBytes / n_bytes + 1);
}

void gemm_f32(State& state, WeightType type) { gemm<float>(state, type); }
void gemm_f64(State& state, WeightType type) { gemm<double>(state, type); }
void gemv_f32(State& state, WeightType type) { gemv<float>(state, type); }
void gemv_f64(State& state, WeightType type) { gemv<double>(state, type); }

// range: tokens, heads, key/value heads, head_dim
void attention(State& state, Phase phase) {
  const auto backend = cpu(Precision::f32);
  AttentionShape shape;
  const auto n_tokens = static_cast<int32_t>(state.range(0));
  shape.n_head = static_cast<int32_t>(state.range(1));
  shape.n_head_kv = static_cast<int32_t>(state.range(2));
  shape.head_dim = static_cast<int32_t>(state.range(3));
  shape.scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  const auto cache = backend->make_kv_cache({1, shape.n_head_kv, shape.head_dim});
  begin(*backend, *cache, Phase::prefill, n_tokens);
  testing::RandomValues values(3);
  const int64_t n_q = int64_t{shape.n_head} * shape.head_dim,
                n_kv = int64_t{shape.n_head_kv} * shape.head_dim;
  auto q = values.normals<float>(static_cast<size_t>(n_tokens * n_q));
  auto k = values.normals<float>(static_cast<size_t>(n_tokens * n_kv));
  auto v = values.normals<float>(static_cast<size_t>(n_tokens * n_kv));
  std::vector<float> out(q.size(), std::nanf(""));
  backend->store_kv(0, {k.data(), n_tokens, n_kv}, {v.data(), n_tokens, n_kv});
  double keys = 0.5 * n_tokens * (n_tokens + 1.0);
  Activation aq{q.data(), n_tokens, n_q}, ao{out.data(), n_tokens, n_q};
  if (phase == Phase::decode) {
    TokenBatch batch;
    batch.phase = phase;
    batch.tokens = {0};
    batch.pieces = {{0, 0, 1, n_tokens - 1}};
    backend->begin(batch, *cache);
    keys = n_tokens;
    aq.n_rows = ao.n_rows = 1;
    aq.data = q.data() + static_cast<size_t>((n_tokens - 1) * n_q);
  }
  backend->attention(ao, aq, shape);
  const std::vector<double> last_q(q.end() - n_q, q.end());
  const auto want = reference::attention(last_q, {k.begin(), k.end()}, {v.begin(), v.end()}, shape,
                                         static_cast<size_t>(n_tokens - 1));
  const float* last = out.data() + (ao.n_rows - 1) * n_q;
  for (size_t i = 0; i < want.size(); ++i) {
    if (!(std::fabs(static_cast<double>(last[i]) - want[i]) <= 1e-4)) {
      state.SkipWithError("attention is wrong");
      return;
    }
  }
  for (auto _ : state) backend->attention(ao, aq, shape);
  set_flops(state, 4.0 * keys * shape.n_head * shape.head_dim);
  if (phase == Phase::decode) set_bytes(state, 2.0 * keys * static_cast<double>(n_kv) * sizeof(float));
}

// Wall time; with CPU_TIME set, the processor time of all threads, which other programs on the machine disturb less.
void timed(benchmark::internal::Benchmark* b) {
  if (std::getenv("CPU_TIME") != nullptr) {
    b->MeasureProcessCPUTime();
  } else {
    b->UseRealTime();
  }
}

void shapes_of_layer(benchmark::internal::Benchmark* b) {
  for (const int64_t m : {512}) {
    b->Args({1024, 1024, m})
        ->Args({1024, 2048, m})
        ->Args({1024, 3072, m})
        ->Args({2048, 1024, m})
        ->Args({3072, 1024, m});
  }
}

BENCHMARK(fma_peak)->Apply(timed);
BENCHMARK(read_peak)->Apply(timed);
BENCHMARK_CAPTURE(gemm_f32, F32, WeightType::F32)->Apply(shapes_of_layer)->Apply(timed);
BENCHMARK_CAPTURE(gemm_f32, F32_small, WeightType::F32)
    ->Args({1024, 3072, 1})
    ->Args({1024, 3072, 16})
    ->Args({1024, 3072, 32})
    ->Args({1024, 3072, 64})
    ->Apply(timed);
BENCHMARK_CAPTURE(gemm_f32, Q8_0, WeightType::Q8_0)->Args({1024, 3072, 512})->Apply(timed);
BENCHMARK_CAPTURE(gemm_f32, F16, WeightType::F16)->Args({1024, 3072, 512})->Apply(timed);
BENCHMARK_CAPTURE(gemm_f32, BF16, WeightType::BF16)->Args({1024, 3072, 512})->Apply(timed);
BENCHMARK_CAPTURE(gemm_f64, F32, WeightType::F32)->Args({1024, 3072, 512})->Apply(timed);
BENCHMARK_CAPTURE(gemv_f32, F32, WeightType::F32)
    ->Args({1024, 3072, 1})
    ->Args({3072, 1024, 1})
    ->Args({1024, 3072, 8})
    ->Apply(timed);
BENCHMARK_CAPTURE(gemv_f32, F16, WeightType::F16)->Args({1024, 3072, 1})->Args({1024, 3072, 8})->Apply(timed);
BENCHMARK_CAPTURE(gemv_f32, BF16, WeightType::BF16)
    ->Args({1024, 3072, 1})
    ->Args({1024, 3072, 8})
    ->Apply(timed);
BENCHMARK_CAPTURE(gemv_f32, Q8_0, WeightType::Q8_0)
    ->Args({1024, 3072, 1})
    ->Args({3072, 1024, 1})
    ->Args({1024, 3072, 8})
    ->Apply(timed);
BENCHMARK_CAPTURE(gemv_f64, F32, WeightType::F32)->Args({1024, 3072, 1})->Apply(timed);
BENCHMARK_CAPTURE(attention, prefill, Phase::prefill)
    ->Args({512, 16, 8, 128})
    ->Args({64, 16, 8, 128})
    ->Apply(timed);
BENCHMARK_CAPTURE(attention, decode, Phase::decode)
    ->Args({512, 16, 8, 128})
    ->Args({4096, 16, 8, 128})
    ->Apply(timed);

}  // namespace
}  // namespace logitgate

BENCHMARK_MAIN();
#endif  // HWY_ONCE
