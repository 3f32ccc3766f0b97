// Plain scalar ops in double: what every kernel is tested against.
// Contract: written from the equations alone, one loop an index, no blocking; weights are dequantised by the type
// table. Rows are std::vector<double>, row-major.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "formats/quant/weight_type.h"
#include "lib/backend.h"
#include "lib/token_batch.h"

namespace logitgate::reference {

using Rows = std::vector<double>;

// w [n_out, n_in] as double
inline Rows dequantise(const Weight& w) {
  const WeightTypeInfo& info = weight_type_info(w.type);
  const size_t n = static_cast<size_t>(w.n_in) * static_cast<size_t>(w.n_out);
  std::vector<float> floats(n);
  info.dequantize_row(w.data, floats.data(), n);
  return Rows(floats.begin(), floats.end());
}

// y[t, o] = Σ_i w[o, i] · x[t, i]; with absolute = true, Σ |w| · |x|, what rounding errors are measured by
inline Rows matmul(const Rows& w, const Rows& x, size_t n_in, bool absolute = false) {
  const size_t n_out = w.size() / n_in, n_tokens = x.size() / n_in;
  Rows y(n_tokens * n_out);
  for (size_t t = 0; t < n_tokens; ++t) {
    for (size_t o = 0; o < n_out; ++o) {
      double sum = 0;
      for (size_t i = 0; i < n_in; ++i) {
        const double product = w[o * n_in + i] * x[t * n_in + i];
        sum += absolute ? std::fabs(product) : product;
      }
      y[t * n_out + o] = sum;
    }
  }
  return y;
}

inline Rows rms_norm(const Rows& x, const Rows& w, double eps) {
  const size_t n = w.size();
  Rows y(x.size());
  for (size_t g = 0; g < x.size() / n; ++g) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += x[g * n + i] * x[g * n + i];
    const double scale = 1 / std::sqrt(sum / static_cast<double>(n) + eps);
    for (size_t i = 0; i < n; ++i) y[g * n + i] = x[g * n + i] * scale * w[i];
  }
  return y;
}

// x [T, n_heads · head_dim] rotated to `positions`
inline Rows rope(Rows x, const RopeTable& table, size_t head_dim, const std::vector<int32_t>& positions) {
  const size_t n_cols = x.size() / positions.size();
  const size_t n_pairs = static_cast<size_t>(table.n_rot) / 2;
  for (size_t t = 0; t < positions.size(); ++t) {
    for (size_t h = 0; h < n_cols / head_dim; ++h) {
      double* head = x.data() + t * n_cols + h * head_dim;
      for (size_t i = 0; i < n_pairs; ++i) {
        const size_t a = table.interleaved ? 2 * i : i;
        const size_t b = table.interleaved ? 2 * i + 1 : i + n_pairs;
        const double c = table.cos[static_cast<size_t>(positions[t]) * n_pairs + i];
        const double s = table.sin[static_cast<size_t>(positions[t]) * n_pairs + i];
        const double x_a = head[a], x_b = head[b];
        head[a] = x_a * c - x_b * s;
        head[b] = x_a * s + x_b * c;
      }
    }
  }
  return x;
}

inline Rows swiglu(const Rows& gate, const Rows& up) {
  Rows y(gate.size());
  for (size_t i = 0; i < y.size(); ++i) y[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  return y;
}

// One record: q [T, n_head · head_dim] at positions first…, keys and values [positions, n_head_kv · head_dim]
inline Rows attention(const Rows& q, const Rows& k, const Rows& v, const AttentionShape& shape,
                      size_t first) {
  const size_t d = static_cast<size_t>(shape.head_dim);
  const size_t n_head = static_cast<size_t>(shape.n_head), n_head_kv = static_cast<size_t>(shape.n_head_kv);
  Rows out(q.size());
  for (size_t t = 0; t < q.size() / (n_head * d); ++t) {
    for (size_t h = 0; h < n_head; ++h) {
      const size_t h_kv = h / (n_head / n_head_kv);
      const size_t n_keys = first + t + 1;
      Rows p(n_keys);
      double max = -INFINITY, total = 0;
      for (size_t j = 0; j < n_keys; ++j) {
        for (size_t i = 0; i < d; ++i)
          p[j] += q[(t * n_head + h) * d + i] * k[(j * n_head_kv + h_kv) * d + i];
        p[j] *= shape.scale;
        max = std::fmax(max, p[j]);
      }
      for (double& x : p) total += x = std::exp(x - max);
      for (size_t i = 0; i < d; ++i) {
        double sum = 0;
        for (size_t j = 0; j < n_keys; ++j) sum += p[j] * v[(j * n_head_kv + h_kv) * d + i];
        out[(t * n_head + h) * d + i] = sum / total;
      }
    }
  }
  return out;
}

}  // namespace logitgate::reference
