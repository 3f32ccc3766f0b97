// The head: logits of many rows in chunks, computed, copied and consumed at the same time.
// Contract: CudaBackend::lm_head of lib/backend.h. Chunk c is computed while chunk c − 1 crosses to the host
// and is consumed; two buffers on the device and two page-locked ones on the host take turns.
#include <algorithm>
#include <array>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/logit_buffers.h"
#include "lib/error.h"

namespace logitgate::cuda {

void CudaBackend::lm_head(const Weight& output, Activation x, LogitSink& sink) {
  need_pass("lm_head");
  use_device();
  if (output.n_in != x.n_cols)
    fail(ErrorCode::resource, "cuda: lm_head: {} columns for weights of {}", x.n_cols, output.n_in);
  if (!logits_) logits_ = std::make_unique<LogitBuffers>();
  const size_t row_bytes = static_cast<size_t>(output.n_out) * element_size();
  const int64_t chunk_rows = std::min(x.n_rows, LogitBuffers::rows_a_chunk(row_bytes));
  if (chunk_rows == 0) return;
  logits_->reserve(static_cast<size_t>(chunk_rows) * row_bytes);
  const int64_t n_chunks = (x.n_rows + chunk_rows - 1) / chunk_rows;
  const auto rows_of = [&](int64_t chunk) { return std::min(chunk_rows, x.n_rows - chunk * chunk_rows); };
  const auto issue = [&](int64_t chunk) {
    LogitBuffers::Half& half = logits_->half[static_cast<size_t>(chunk % 2)];
    std::byte* const from =
        static_cast<std::byte*>(x.data) + static_cast<size_t>(chunk * chunk_rows * x.n_cols) * element_size();
    LOGITGATE_CUDA(cudaStreamWaitEvent(stream_, half.copied));
    matmul_rows(half.device.as<void>(), output, {from, rows_of(chunk), x.n_cols});
    LOGITGATE_CUDA(cudaEventRecord(half.computed, stream_));
    LOGITGATE_CUDA(cudaStreamWaitEvent(copy_stream_, half.computed));
    LOGITGATE_CUDA(cudaMemcpyAsync(half.host.data(), half.device.as<void>(),
                                   static_cast<size_t>(rows_of(chunk)) * row_bytes, cudaMemcpyDeviceToHost,
                                   copy_stream_));
    LOGITGATE_CUDA(cudaEventRecord(half.copied, copy_stream_));
  };
  const auto consume = [&](int64_t chunk) {
    LogitBuffers::Half& half = logits_->half[static_cast<size_t>(chunk % 2)];
    LOGITGATE_CUDA(cudaEventSynchronize(half.copied));
    const size_t n = static_cast<size_t>(rows_of(chunk) * output.n_out);
    LogitChunk logits{chunk * chunk_rows, rows_of(chunk), output.n_out, {}, {}};
    if (wide()) {
      logits.f64 = {static_cast<const double*>(half.host.data()), n};
    } else {
      logits.f32 = {static_cast<const float*>(half.host.data()), n};
    }
    sink.consume(logits);
  };
  for (int64_t chunk = 0; chunk < n_chunks; chunk++) {
    issue(chunk);
    if (chunk > 0) consume(chunk - 1);
  }
  consume(n_chunks - 1);
}

size_t CudaBackend::logit_bytes_to_come() const {
  const size_t have = logits_ ? logits_->device_bytes() : 0;
  return 2 * LogitBuffers::kChunkBytes - std::min(2 * LogitBuffers::kChunkBytes, have);
}

}  // namespace logitgate::cuda
