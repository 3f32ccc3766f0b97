// The meaning of the fused ops: their bodies in primitive ones.
// Contract: a backend that overrides one keeps this meaning and is tested against the body here.
#include "lib/backend.h"

#include "lib/error.h"

namespace logitgate {

void Backend::write(Activation x, std::span<const double> values) {
  if (values.size() != static_cast<size_t>(x.n_rows * x.n_cols))
    fail(ErrorCode::resource, "write: {} values for [{}, {}]", values.size(), x.n_rows, x.n_cols);
  for (size_t i = 0; i < values.size(); ++i) {
    if (precision() == Precision::f64)
      static_cast<double*>(x.data)[i] = values[i];
    else
      static_cast<float*>(x.data)[i] = static_cast<float>(values[i]);
  }
}

void Backend::add_rms_norm(Activation h, Activation x, Activation y, const Weight& w, double eps) {
  add(x, y);
  rms_norm(h, x, w, eps);
}

void Backend::qkv(Activation q, Activation k, Activation v, Activation x, const QkvWeights& w,
                  const DeviceRope& rope_table, const AttentionShape& shape) {
  matmul(q, w.attn_q, x);
  matmul(k, w.attn_k, x);
  matmul(v, w.attn_v, x);
  if (w.attn_q_norm) rms_norm(q, q, w.attn_q_norm, w.rms_norm_eps);
  if (w.attn_k_norm) rms_norm(k, k, w.attn_k_norm, w.rms_norm_eps);
  rope(q, rope_table, shape.head_dim);
  rope(k, rope_table, shape.head_dim);
  store_kv(shape.layer, k, v);
}

void Backend::gated_mlp(Activation h, Activation up, Activation x, const Weight& ffn_gate,
                        const Weight& ffn_up) {
  matmul(h, ffn_gate, x);
  matmul(up, ffn_up, x);
  swiglu(h, h, up);
}

}  // namespace logitgate
