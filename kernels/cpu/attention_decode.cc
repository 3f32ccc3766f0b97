// Causal attention of Phase::decode.
// Contract: see attention.h. A task is one token with the query heads of one key/value head, so that keys and values are
// read once for the group.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_decode.cc"
#include <hwy/foreach_target.h>
// after foreach_target
#include <limits>

#include "kernels/cpu/attention_group.h"
#include "kernels/cpu/dot-inl.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {

// p[j] = exp(scale · p[j] - max) for n keys, p[n…] = 0 up to a multiple of 16; returns the sum.
template <class T>
HWY_INLINE T softmax(T* p, size_t n, T scale) {
  const VecTag<T> d;
  Lanes16<T> max;
  LOGITGATE_UNROLL
  for (size_t i = 0; i < kVecs<T>; ++i) max.v[i] = hn::Set(d, -std::numeric_limits<T>::infinity());
  for (size_t j = n; j % 16 != 0; ++j) p[j] = -std::numeric_limits<T>::infinity();
  for (size_t j = 0; j < n; j += 16) {
    Lanes16<T> s = load16(p + j);
    LOGITGATE_UNROLL
    for (size_t i = 0; i < kVecs<T>; ++i) {
      s.v[i] = hn::Mul(s.v[i], hn::Set(d, scale));
      max.v[i] = hn::Max(max.v[i], s.v[i]);
    }
    store16(s, p + j);
  }
  T lanes[16];
  store16(max, lanes);
  T greatest = lanes[0];
  for (size_t i = 1; i < 16; ++i) greatest = lanes[i] > greatest ? lanes[i] : greatest;
  Lanes16<T> total = zero16<T>();
  for (size_t j = 0; j < n; j += 16) {
    Lanes16<T> s = load16(p + j);
    LOGITGATE_UNROLL
    for (size_t i = 0; i < kVecs<T>; ++i) {
      const Vec<T> e = Exp(d, hn::Sub(s.v[i], hn::Set(d, greatest)));
      const Vec<T> in_range = hn::Iota(d, static_cast<T>(j + i * kLanes<T>));
      s.v[i] = hn::IfThenElseZero(hn::Lt(in_range, hn::Set(d, static_cast<T>(n))), e);
      total.v[i] = hn::Add(total.v[i], s.v[i]);
    }
    store16(s, p + j);
  }
  return sum16(total);
}

// out[g, i] = Σ_j p[g, j] · values[j, i] / total[g] for kHeads heads and up to kVectors vectors of elements
template <class T, size_t kHeads, size_t kVectors>
HWY_INLINE void weigh_values(const AttentionGroup<T>& a, size_t first_head, size_t first_element,
                             size_t n_elements) {
  const VecTag<T> d;
  Vec<T> acc[kHeads][kVectors];
  LOGITGATE_UNROLL
  for (size_t g = 0; g < kHeads; ++g) {
    LOGITGATE_UNROLL
    for (size_t v = 0; v < kVectors; ++v) acc[g][v] = hn::Zero(d);
  }
  const T* p = a.weights + first_head * a.weight_stride;
  for (size_t j = 0; j < a.n_keys; ++j) {
    const T* value = a.values + j * a.head_dim + first_element;
    LOGITGATE_UNROLL
    for (size_t v = 0; v < kVectors; ++v) {
      const Vec<T> x = load_n(value + v * kLanes<T>, kVectors == 1 ? n_elements : kLanes<T>);
      LOGITGATE_UNROLL
      for (size_t g = 0; g < kHeads; ++g) {
        acc[g][v] = hn::MulAdd(hn::Set(d, p[g * a.weight_stride + j]), x, acc[g][v]);
      }
    }
  }
  LOGITGATE_UNROLL
  for (size_t g = 0; g < kHeads; ++g) {
    const Vec<T> total = hn::Set(d, a.totals[first_head + g]);
    LOGITGATE_UNROLL
    for (size_t v = 0; v < kVectors; ++v) {
      store_n<T>(hn::Div(acc[g][v], total),
                 a.out + (first_head + g) * a.head_dim + first_element + v * kLanes<T>,
                 kVectors == 1 ? n_elements : kLanes<T>);
    }
  }
}

template <class T, size_t kHeads>
HWY_INLINE void weigh_heads(const AttentionGroup<T>& a, size_t first_head) {
  constexpr size_t kWide = 4 * kLanes<T>;
  size_t i = 0;
  for (; i + kWide <= a.head_dim; i += kWide) weigh_values<T, kHeads, 4>(a, first_head, i, kWide);
  for (; i < a.head_dim; i += kLanes<T>) {
    weigh_values<T, kHeads, 1>(a, first_head, i, HWY_MIN(kLanes<T>, a.head_dim - i));
  }
}

template <class T>
void attend_group(const AttentionGroup<T>& a) {
  dot_products<PlainReader<T, T>, T>(reinterpret_cast<const std::byte*>(a.keys), a.head_dim * sizeof(T),
                                     a.n_keys, a.q, a.head_dim, a.n_group, a.head_dim, a.weights,
                                     a.weight_stride);
  for (size_t g = 0; g < a.n_group; ++g)
    a.totals[g] = softmax(a.weights + g * a.weight_stride, a.n_keys, a.scale);
  size_t g = 0;
  for (; g + 2 <= a.n_group; g += 2) weigh_heads<T, 2>(a, g);
  for (; g < a.n_group; ++g) weigh_heads<T, 1>(a, g);
}

void attend_group_f32(const AttentionGroup<float>& a) { attend_group<float>(a); }
void attend_group_f64(const AttentionGroup<double>& a) { attend_group<double>(a); }

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace logitgate {
namespace {

HWY_EXPORT(attend_group_f32);
HWY_EXPORT(attend_group_f64);

void attend(const AttentionGroup<float>& a) { HWY_DYNAMIC_DISPATCH(attend_group_f32)(a); }
void attend(const AttentionGroup<double>& a) { HWY_DYNAMIC_DISPATCH(attend_group_f64)(a); }

}  // namespace

template <class T>
void attention_decode(ThreadPool& pool, std::vector<Scratch>& scratch, const AttentionArgs<T>& args,
                      const std::vector<BatchPiece>& pieces) {
  const AttentionShape& shape = args.shape;
  const size_t n_heads_kv = static_cast<size_t>(shape.n_head_kv);
  pool.run(pieces.size() * n_heads_kv, [&](size_t task, size_t thread) {
    const BatchPiece& piece = pieces[task / n_heads_kv];
    const size_t head = task % n_heads_kv;
    AttentionGroup<T> a;
    a.head_dim = static_cast<size_t>(shape.head_dim);
    a.n_group = static_cast<size_t>(shape.n_head) / n_heads_kv;
    const size_t start =
        (static_cast<size_t>(piece.first_token) * static_cast<size_t>(shape.n_head) + head * a.n_group) *
        a.head_dim;
    a.q = args.q + start;
    a.out = args.out + start;
    a.keys = args.cache->keys(piece.slot, shape.layer, head);
    a.values = args.cache->values(piece.slot, shape.layer, head);
    a.n_keys = static_cast<size_t>(piece.first_position) + 1;
    a.scale = static_cast<T>(shape.scale);
    a.weight_stride = (a.n_keys + 15) / 16 * 16;
    a.weights = scratch[thread].get<T>(a.n_group * (a.weight_stride + 1));
    a.totals = a.weights + a.n_group * a.weight_stride;
    attend(a);
  });
}

template void attention_decode<float>(ThreadPool&, std::vector<Scratch>&, const AttentionArgs<float>&,
                                      const std::vector<BatchPiece>&);
template void attention_decode<double>(ThreadPool&, std::vector<Scratch>&, const AttentionArgs<double>&,
                                       const std::vector<BatchPiece>&);

}  // namespace logitgate
#endif  // HWY_ONCE
