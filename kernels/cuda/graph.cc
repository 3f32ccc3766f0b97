// Decode passes recorded as CUDA graphs.
// Contract: CudaBackend::replay of lib/backend.h. The first call of a shape runs the ops as they are, which
// makes every scratch array as large as it must be; the second captures them; later ones launch the graph.
// Whatever the graph holds by value (addresses, the number of tokens, the grid's bound on positions) is its
// key: where that has changed, the ops run and are captured anew.
#include "kernels/cuda/cuda_backend.h"
#include "lib/error.h"

namespace logitgate::cuda {
namespace {

struct GraphKey {
  Phase phase = Phase::decode;
  int32_t n_tokens = 0;
  int32_t bound = 0;
  const void* addresses[8] = {};
  bool operator==(const GraphKey&) const = default;
};

struct CudaRecording : Recording {
  GraphKey key;
  int32_t n_rope_positions = 0;
  cudaGraphExec_t graph = nullptr;
  int device = 0;
  CudaRecording() = default;
  CudaRecording(const CudaRecording&) = delete;
  CudaRecording& operator=(const CudaRecording&) = delete;
  ~CudaRecording() override { drop(); }
  void drop() {
    if (graph != nullptr) (void)cudaGraphExecDestroy(graph);
    graph = nullptr;
  }
};

}  // namespace

void CudaBackend::replay(std::unique_ptr<Recording>& recording, const std::function<void()>& ops) {
  need_pass("replay");
  if (phase_ != Phase::decode) return ops();
  const auto key_now = [&] {
    const KvView kv = cache_->view();
    return GraphKey{phase_,
                    n_tokens_,
                    decode_bound_,
                    {tokens_.as<void>(), positions_.as<void>(), slots_.as<void>(), kv.base, kv.capacity,
                     attention_partial_.as<void>(), attention_counters_.as<void>(), cache_}};
  };
  auto* recorded = dynamic_cast<CudaRecording*>(recording.get());
  if (recorded == nullptr || !(recorded->key == key_now())) {
    ops();
    auto fresh = std::make_unique<CudaRecording>();
    fresh->key = key_now();
    recording = std::move(fresh);
    return;
  }
  if (recorded->graph == nullptr) {
    cudaGraph_t graph = nullptr;
    LOGITGATE_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    try {
      ops();
    } catch (...) {
      (void)cudaStreamEndCapture(stream_, &graph);
      if (graph != nullptr) (void)cudaGraphDestroy(graph);
      throw;
    }
    LOGITGATE_CUDA(cudaStreamEndCapture(stream_, &graph));
    const cudaError_t status = cudaGraphInstantiate(&recorded->graph, graph, 0);
    (void)cudaGraphDestroy(graph);
    check(status, "cudaGraphInstantiate");
    recorded->n_rope_positions = n_rope_positions_;
  }
  if (max_position_ >= recorded->n_rope_positions)
    fail(ErrorCode::resource, "cuda: replay: a position is past the rotary tables");
  LOGITGATE_CUDA(cudaGraphLaunch(recorded->graph, stream_));
}

}  // namespace logitgate::cuda
