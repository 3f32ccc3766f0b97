// Times the engine on one model: prefill of N tokens in one pass, and decode of M tokens over the KV cache.
// Contract: engine_bench MODEL N M REPEATS THREADS prints one JSON object with medians in tokens a second; before that it
// checks that both phases give finite logits that agree. Prefill keeps the last row, decode every row.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "kernels/backends.h"
#include "lib/arch/architecture.h"
#include "lib/error.h"

namespace logitgate {
namespace {

class LastRow : public LogitSink {
 public:
  void consume(const LogitChunk& chunk) override {
    const size_t last = static_cast<size_t>((chunk.n_rows - 1) * chunk.n_vocab);
    row.assign(chunk.f32.begin() + last, chunk.f32.end());
  }
  std::vector<float> row;
};

class Bench {
 public:
  Bench(const char* path, int n_prefill, int n_decode, int threads)
      : file_(ModelFile::open(path)),
        backend_(make_backend({"cpu", Precision::f32, threads})),
        model_(make_architecture(file_, *backend_)),
        cache_(backend_->make_kv_cache(model_->kv_shape())) {
    const int n = std::max(n_prefill, n_decode);
    std::mt19937 random(1);
    for (int i = 0; i < n; ++i)
      tokens_.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(model_->config().n_vocab)));
    model_->reserve(n, n);
    cache_->reserve(0, n);
  }

  double prefill(int n) {
    return time([&] {
      const TokenBatch batch{Phase::prefill, {tokens_.begin(), tokens_.begin() + n}, {{0, 0, n, 0}}};
      const int32_t row = n - 1;
      model_->forward(batch, *cache_, {&row, 1}, sink_);
    });
  }
  double decode(int n) {
    return time([&] {
      for (int i = 0; i < n; ++i) {
        const int32_t row = 0;
        model_->forward({Phase::decode, {tokens_[i]}, {{0, 0, 1, i}}}, *cache_, {&row, 1}, sink_);
      }
    });
  }
  void check(int n) {
    prefill(n);
    const std::vector<float> batched = sink_.row;
    decode(n);
    double drift = 0, largest = 0;
    for (size_t i = 0; i < batched.size(); ++i) {
      const double diff = std::fabs(double{batched[i]} - sink_.row[i]);
      if (!(diff <= 1e-2))
        fail(ErrorCode::corrupt, "prefill and decode disagree at token {}: {} and {}", i, batched[i],
             sink_.row[i]);
      drift = std::max(drift, diff);
      largest = std::max(largest, std::fabs(double{batched[i]}));
    }
    if (!(largest > 0.1)) fail(ErrorCode::corrupt, "logits are flat: nothing was computed");
    std::fprintf(stderr, "checked: prefill and decode differ by at most %.2g, logits reach %.2g\n", drift,
                 largest);
  }

 private:
  template <class F>
  static double time(F work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  ModelFile file_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Architecture> model_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> tokens_;
  LastRow sink_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run(char** argv) {
  const int n_prefill = std::atoi(argv[2]), n_decode = std::atoi(argv[3]), repeats = std::atoi(argv[4]);
  Bench bench(argv[1], n_prefill, n_decode, std::atoi(argv[5]));
  bench.check(std::min({n_prefill, n_decode, 16}));
  std::vector<double> prefill, decode;
  for (int i = 0; i <= repeats; ++i) {
    prefill.push_back(bench.prefill(n_prefill));
    decode.push_back(bench.decode(n_decode));
  }
  prefill.erase(prefill.begin());  // the first of each is warm-up
  decode.erase(decode.begin());
  std::printf("{\"prefill\": %.3f, \"decode\": %.3f, \"simd\": \"%s\"}\n", n_prefill / median(prefill),
              n_decode / median(decode), simd_level().c_str());
  return 0;
}

}  // namespace
}  // namespace logitgate

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: engine_bench MODEL N_PREFILL N_DECODE REPEATS THREADS\n");
    return 2;
  }
  try {
    return logitgate::run(argv);
  } catch (const logitgate::Error& error) {
    std::fprintf(stderr, "engine_bench: %s\n", error.what());
    return 2;
  }
}
