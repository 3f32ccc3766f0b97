// Causal attention of Phase::prefill.
// Contract: see attention.h.
#include "kernels/cpu/attention.h"

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include <hwy/foreach_target.h>
// after foreach_target
#include <limits>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace logitgate {
namespace HWY_NAMESPACE {

template <class T>
struct TileState {
  T* queries;    // [head_dim, kPanel]
  T* sums;       // [head_dim, kPanel]
  T* scores;     // [kKeyBlock, kPanel]
  T* maxima;     // [kPanel]
  T* totals;     // [kPanel]
  T* positions;  // [kPanel]
  T* rescale;    // [kPanel]
};

// Lanes past the last one repeat it, so that they compute something finite.
template <class T>
HWY_INLINE TileState<T> begin_tile(const AttentionTile<T>& a) {
  constexpr size_t P = kPanel<T>;
  TileState<T> s;
  s.queries = a.scratch;
  s.sums = s.queries + a.head_dim * P;
  s.scores = s.sums + a.head_dim * P;
  s.maxima = s.scores + kKeyBlock * P;
  s.totals = s.maxima + P;
  s.positions = s.totals + P;
  s.rescale = s.positions + P;
  transpose_rows<T, true>([&](size_t l) HWY_ATTR { return a.q + a.offset(HWY_MIN(l, a.n_lanes - 1)); }, P,
                          a.head_dim, [&](size_t i) HWY_ATTR { return s.queries + i * P; });
  for (size_t l = 0; l < P; ++l) {
    s.positions[l] = static_cast<T>(a.position(HWY_MIN(l, a.n_lanes - 1)));
    s.maxima[l] = -std::numeric_limits<T>::infinity();
    s.totals[l] = 0;
  }
  std::memset(s.sums, 0, a.head_dim * P * sizeof(T));
  return s;
}

// Scores of n_keys keys from position `first` on become exp(score - m); returns whether a running maximum rose.
// Lanes whose token stands before a key get the weight 0 there.
template <class T>
HWY_INLINE bool softmax_block(const AttentionTile<T>& a, const TileState<T>& s, size_t first, size_t n_keys) {
  constexpr size_t P = kPanel<T>;
  const VecTag<T> d;
  const Vec<T> scale = hn::Set(d, a.scale), never = hn::Set(d, -std::numeric_limits<T>::infinity());
  bool rose = false;
  for (size_t l = 0; l < a.n_lanes; l += kLanes<T>) {
    const Vec<T> position = hn::LoadU(d, s.positions + l);
    const Vec<T> old_max = hn::LoadU(d, s.maxima + l);
    Vec<T> max = old_max;
    for (size_t j = 0; j < n_keys; ++j) {
      const auto seen = hn::Le(hn::Set(d, static_cast<T>(first + j)), position);
      const Vec<T> score = hn::Mul(hn::LoadU(d, s.scores + j * P + l), scale);
      const Vec<T> bounded = hn::IfThenElse(seen, score, never);
      hn::StoreU(bounded, d, s.scores + j * P + l);
      max = hn::Max(max, bounded);
    }
    const auto same = hn::Eq(max, old_max);
    const Vec<T> rescale = hn::IfThenElse(same, hn::Set(d, T{1}), Exp(d, hn::Sub(old_max, max)));
    Vec<T> total = hn::Mul(hn::LoadU(d, s.totals + l), rescale);
    for (size_t j = 0; j < n_keys; ++j) {
      const Vec<T> p = Exp(d, hn::Sub(hn::LoadU(d, s.scores + j * P + l), max));
      hn::StoreU(p, d, s.scores + j * P + l);
      total = hn::Add(total, p);
    }
    rose = rose || !hn::AllTrue(d, same);
    hn::StoreU(max, d, s.maxima + l);
    hn::StoreU(total, d, s.totals + l);
    hn::StoreU(rescale, d, s.rescale + l);
  }
  return rose;
}

// sums · rescale; a factor of 1 changes no bit, so that this may be left out where no maximum rose
template <class T>
HWY_INLINE void rescale_sums(const AttentionTile<T>& a, const TileState<T>& s) {
  const VecTag<T> d;
  for (size_t l = 0; l < a.n_lanes; l += kLanes<T>) {
    const Vec<T> factor = hn::LoadU(d, s.rescale + l);
    for (size_t i = 0; i < a.head_dim; ++i) {
      T* p = s.sums + i * kPanel<T> + l;
      hn::StoreU(hn::Mul(hn::LoadU(d, p), factor), d, p);
    }
  }
}

template <class T>
HWY_INLINE void end_tile(const AttentionTile<T>& a, const TileState<T>& s) {
  const VecTag<T> d;
  for (size_t l = 0; l < a.n_lanes; l += kLanes<T>) {
    const Vec<T> total = hn::LoadU(d, s.totals + l);
    for (size_t i = 0; i < a.head_dim; ++i) {
      T* p = s.sums + i * kPanel<T> + l;
      hn::StoreU(hn::Div(hn::LoadU(d, p), total), d, p);
    }
  }
  transpose_rows<T, false>([&](size_t i) HWY_ATTR { return s.sums + i * kPanel<T>; }, a.head_dim, a.n_lanes,
                           [&](size_t l) HWY_ATTR { return a.out + a.offset(l); });
}

template <class T>
void attend_tile(const AttentionTile<T>& a) {
  const TileState<T> s = begin_tile(a);
  const size_t least = a.position(0), most = a.position(a.n_lanes - 1);
  for (size_t first = 0; first <= most; first += kKeyBlock) {
    const size_t n_keys = HWY_MIN(kKeyBlock, most + 1 - first);
    multiply_panel<T>(a.keys + first * a.head_dim, a.head_dim, 1, n_keys, s.queries, a.head_dim, s.scores,
                      a.n_lanes, true);
    if (softmax_block(a, s, first, n_keys)) rescale_sums(a, s);
    // Keys that every lane sees, then those that some lanes must pass over: a value times 0 is not nothing.
    const size_t n_seen = least >= first ? HWY_MIN(n_keys, least + 1 - first) : 0;
    const T* values = a.values + first * a.head_dim;
    if (n_seen > 0)
      multiply_panel<T>(values, 1, a.head_dim, a.head_dim, s.scores, n_seen, s.sums, a.n_lanes, false);
    if (n_seen < n_keys) {
      multiply_panel_bounded<T>(values + n_seen * a.head_dim, 1, a.head_dim, a.head_dim,
                                s.scores + n_seen * kPanel<T>, n_keys - n_seen, s.sums, a.n_lanes,
                                s.positions, static_cast<T>(first + n_seen));
    }
  }
  end_tile(a, s);
}

void attend_tile_f32(const AttentionTile<float>& a) { attend_tile<float>(a); }
void attend_tile_f64(const AttentionTile<double>& a) { attend_tile<double>(a); }

}  // namespace HWY_NAMESPACE
}  // namespace logitgate
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <numeric>

namespace logitgate {
namespace {

HWY_EXPORT(attend_tile_f32);
HWY_EXPORT(attend_tile_f64);

void attend(const AttentionTile<float>& a) { HWY_DYNAMIC_DISPATCH(attend_tile_f32)(a); }
void attend(const AttentionTile<double>& a) { HWY_DYNAMIC_DISPATCH(attend_tile_f64)(a); }

struct TileOrder {
  size_t piece = 0;
  size_t head = 0;  // key/value head
  size_t first_lane = 0;
  size_t n_lanes = 0;
};

// Tiles of all pieces: the tiles of a head follow each other, so that its keys and values stay in the cache; long pieces
// and late tokens come first, so that threads end together.
template <class T>
std::vector<TileOrder> order_tiles(const AttentionShape& shape, const std::vector<BatchPiece>& pieces) {
  std::vector<size_t> by_end(pieces.size());
  std::iota(by_end.begin(), by_end.end(), size_t{0});
  std::stable_sort(by_end.begin(), by_end.end(), [&](size_t a, size_t b) {
    return pieces[a].first_position + pieces[a].n_tokens > pieces[b].first_position + pieces[b].n_tokens;
  });
  const size_t n_group = static_cast<size_t>(shape.n_head / shape.n_head_kv);
  std::vector<TileOrder> tiles;
  for (const size_t p : by_end) {
    const size_t n_lanes = static_cast<size_t>(pieces[p].n_tokens) * n_group;
    const size_t n_tiles = (n_lanes + kPanel<T> - 1) / kPanel<T>;
    for (size_t h = 0; h < static_cast<size_t>(shape.n_head_kv); ++h) {
      for (size_t i = n_tiles; i-- > 0;) {
        tiles.push_back({p, h, i * kPanel<T>, std::min(kPanel<T>, n_lanes - i * kPanel<T>)});
      }
    }
  }
  return tiles;
}

}  // namespace

template <class T>
void attention_prefill(ThreadPool& pool, std::vector<Scratch>& scratch, const AttentionArgs<T>& args,
                       const std::vector<BatchPiece>& pieces) {
  const AttentionShape& shape = args.shape;
  const size_t head_dim = static_cast<size_t>(shape.head_dim);
  const size_t n_group = static_cast<size_t>(shape.n_head / shape.n_head_kv);
  const std::vector<TileOrder> tiles = order_tiles<T>(shape, pieces);
  pool.run(tiles.size(), [&](size_t task, size_t thread) {
    const TileOrder& tile = tiles[task];
    const BatchPiece& piece = pieces[tile.piece];
    AttentionTile<T> a;
    a.token_stride = static_cast<size_t>(shape.n_head) * head_dim;
    const size_t start =
        static_cast<size_t>(piece.first_token) * a.token_stride + tile.head * n_group * head_dim;
    a.q = args.q + start;
    a.out = args.out + start;
    a.keys = args.cache->keys(piece.slot, shape.layer, tile.head);
    a.values = args.cache->values(piece.slot, shape.layer, tile.head);
    a.head_dim = head_dim;
    a.n_group = n_group;
    a.first_lane = tile.first_lane;
    a.n_lanes = tile.n_lanes;
    a.first_position = static_cast<size_t>(piece.first_position);
    a.scale = static_cast<T>(shape.scale);
    a.scratch = scratch[thread].get<T>(tile_scratch<T>(head_dim));
    attend(a);
  });
}

template void attention_prefill<float>(ThreadPool&, std::vector<Scratch>&, const AttentionArgs<float>&,
                                       const std::vector<BatchPiece>&);
template void attention_prefill<double>(ThreadPool&, std::vector<Scratch>&, const AttentionArgs<double>&,
                                        const std::vector<BatchPiece>&);

}  // namespace logitgate
#endif  // HWY_ONCE
