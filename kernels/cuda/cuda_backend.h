// The Backend of one NVIDIA GPU.
// Contract: lib/backend.h. All work is in order on one stream of one device; logits cross to the host on a
// second one. Errors of the device show at the next call that waits for it (lm_head, read), as
// Error{resource}.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/kv_cache.h"
#include "kernels/cuda/logit_buffers.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/staging.h"
#include "kernels/cuda/status.h"
#include "kernels/cuda/upload.h"
#include "lib/backend.h"

namespace logitgate::cuda {

class CudaBackend final : public Backend {
 public:
  CudaBackend(const DeviceInfo& device, Precision precision);
  ~CudaBackend() override;

  Precision precision() const override { return precision_; }
  std::string name() const override { return "cuda"; }
  std::string device() const override { return device_.name; }
  std::vector<std::string> algorithms() const override { return gemm_.describe(); }
  size_t free_memory() const override;
  int32_t preferred_batch_tokens() const override { return 4096; }
  int32_t preferred_lanes() const override { return 8; }

  Buffer allocate(size_t n_bytes) override;
  Weight load(const Tensor& tensor) override;
  DeviceRope load_rope(const RopeTable& table) override;
  std::unique_ptr<KvCache> make_kv_cache(const KvShape& shape) override;
  void begin(const TokenBatch& batch, KvCache& cache) override;

  void embed(Activation x, const Weight& token_embd, double scale) override;
  void rms_norm(Activation y, Activation x, const Weight& w, double eps) override;
  void matmul(Activation y, const Weight& w, Activation x) override;
  void rope(Activation x, const DeviceRope& rope, int32_t head_dim) override;
  void store_kv(int32_t layer, Activation k, Activation v) override;
  void attention(Activation out, Activation q, const AttentionShape& shape) override;
  void swiglu(Activation y, Activation gate, Activation up) override;
  void add(Activation x, Activation y) override;
  void gather_rows(Activation y, Activation x, std::span<const int32_t> rows) override;
  std::vector<double> read(Activation x) override;
  void write(Activation x, std::span<const double> values) override;

  void add_rms_norm(Activation h, Activation x, Activation y, const Weight& w, double eps) override;
  void qkv(Activation q, Activation k, Activation v, Activation x, const QkvWeights& w,
           const DeviceRope& rope, const AttentionShape& shape) override;
  void gated_mlp(Activation h, Activation up, Activation x, const Weight& ffn_gate,
                 const Weight& ffn_up) override;
  void lm_head(const Weight& output, Activation x, LogitSink& sink) override;
  void replay(std::unique_ptr<Recording>& recording, const std::function<void()>& ops) override;

 private:
  size_t logit_bytes_to_come() const;
  bool wide() const { return precision_ == Precision::f64; }
  BatchView batch() const;
  void use_device() const { LOGITGATE_CUDA(cudaSetDevice(device_.index)); }
  void need_pass(const char* op) const;
  void need_position(const DeviceRope& rope) const;
  // The GEMM's right operand for x: x itself, or its bf16 rounding in scratch.
  const void* gemm_operand(Activation x);
  void gemm(void* y, const Weight& w, const void* x_operand, int64_t n_tokens);
  void gemv(const GemvArgs& args);
  void attend_prefill(Activation out, Activation q, const AttentionShape& shape);
  void attend_decode(Activation out, Activation q, const AttentionShape& shape);
  void matmul_rows(void* y, const Weight& w, Activation x);

  DeviceInfo device_;
  Precision precision_;
  Stream stream_;
  Stream copy_stream_;
  GemmPlans gemm_;
  Staging staging_;
  std::unique_ptr<Uploader> uploader_;
  std::vector<Buffer> weights_;
  std::map<std::pair<const void*, std::string>, const void*>
      loaded_;  // the file's bytes and shape → device memory

  // The pass.
  Phase phase_ = Phase::prefill;
  CudaKvCache* cache_ = nullptr;
  std::vector<BatchPiece> pieces_;
  int32_t n_tokens_ = 0;
  int32_t max_position_ = 0;
  int32_t decode_bound_ = 0;      // positions that the decode grid covers
  int32_t n_rope_positions_ = 0;  // fewest positions of a rotary table that the pass used
  DeviceArray tokens_{"token ids"};
  DeviceArray positions_{"positions"};
  DeviceArray slots_{"KV slots"};
  DeviceArray rows_{"row numbers"};
  DeviceArray tiles_{"attention tiles"};
  int64_t n_tiles_ = 0;
  std::pair<int32_t, int32_t> tiles_for_{0, 0};  // rows a tile, heads a group
  DeviceArray attention_partial_{"attention scratch"};
  DeviceArray attention_counters_{"attention scratch"};
  DeviceArray weight_scratch_{"dequantised weights"};
  DeviceArray operand_scratch_{"bf16 activations"};
  std::unique_ptr<LogitBuffers> logits_;
};

}  // namespace logitgate::cuda
