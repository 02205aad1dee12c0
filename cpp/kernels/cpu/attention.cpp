// Causal scaled dot-product attention: out_t = sum over s <= t of p_ts v_s, p_ts = exp(q_t k_s / sqrt(hd) -
// lse_t).
//
// Forward goes over tiles of kTile keys with a running maximum and sum (FlashAttention, Dao et al. 2022), and
// saves lse_t = log sum exp(score). Backward makes p again from lse, tile by tile:
//   dv_s = sum_t p_ts dout_t;  ds_ts = p_ts (dout_t v_s - D_t), D_t = dout_t out_t;
//   dq_t = sum_s ds_ts k_s / sqrt(hd);  dk_s = sum_t ds_ts q_t / sqrt(hd)
// No T x T matrix exists: a tile of scores stays in the first-level cache. A head of a sequence is one
// thread's work with a fixed order of tiles, so no two threads add to the same sum. Costs: 2 B T^2 d FLOP
// forward (the causal half), 5 backward; memory traffic a few times qkv.
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/cpu/vec_math.h"

namespace andrea::ANDREA_CPU_PATH {
namespace {

constexpr std::int64_t kTile = 64;
constexpr float kLowest = -3.0e38f;

// to [n, hd] = rows of from, times factor.
void pack_rows(float* to, const float* from, std::int64_t distance, std::int64_t n, std::int64_t hd,
               float factor) {
  for (std::int64_t t = 0; t < n; ++t)
    for_each_vec(hd, [&](std::int64_t i, auto... count) {
      store(to + t * hd + i, load(from + t * distance + i, count...) * splat(factor), count...);
    });
}

// to [hd, n] with row distance ld: the transpose of n rows of from.
void pack_columns(float* to, std::int64_t ld, const float* from, std::int64_t distance, std::int64_t n,
                  std::int64_t hd) {
  constexpr std::int64_t kStrip = 16;  // a strip of the target stays in the cache while its rows are read
  for (std::int64_t first = 0; first < n; first += kStrip)
    for (std::int64_t e = 0; e < hd; ++e)
      for (std::int64_t t = first; t < smaller(n, first + kStrip); ++t)
        to[e * ld + t] = from[t * distance + e];
}

void unpack_rows(float* to, std::int64_t distance, const float* from, std::int64_t n, std::int64_t hd) {
  for (std::int64_t t = 0; t < n; ++t)
    std::memcpy(to + t * distance, from + t * hd, static_cast<std::size_t>(hd) * sizeof(float));
}

// How many keys of a tile row `row` of a tile sees.
std::int64_t seen_keys(bool diagonal, std::int64_t row, std::int64_t keys) {
  return diagonal ? smaller(keys, row + 1) : keys;
}

// The running softmax of one row of scores: scores become weights, `out` and the lanes of `totals` are
// rescaled.
void softmax_row(float* scores, std::int64_t seen, std::int64_t keys, float* top, float* totals, float* out,
                 std::int64_t hd) {
  Vec tops = splat(kLowest);
  for_each_vec(seen, [&](std::int64_t j, auto... n) {
    Vec value = load(scores + j, n...);
    if constexpr (sizeof...(n) > 0) value = keep(value, n..., splat(kLowest));
    tops = max(value, tops);
  });
  const float tile_top = largest(tops);
  if (tile_top > *top) {
    const Vec rescale = exp(splat(*top - tile_top));
    *top = tile_top;
    store(totals, load(totals) * rescale);
    for_each_vec(hd, [&](std::int64_t i, auto... n) { store(out + i, load(out + i, n...) * rescale, n...); });
  }
  const Vec shift = splat(*top);
  Vec sums = load(totals);
  for_each_vec(seen, [&](std::int64_t j, auto... n) {
    Vec weight = exp(load(scores + j, n...) - shift);
    if constexpr (sizeof...(n) > 0) weight = keep(weight, n..., zero());
    store(scores + j, weight, n...);
    sums += weight;
  });
  store(totals, sums);
  for (std::int64_t j = seen; j < keys; ++j) scores[j] = 0;
}

}  // namespace

// Backward needs the most: q, k, dout, dq and the transposes of k and v of a whole head, then its tiles.
std::int64_t attention_workspace_floats(std::int64_t T, std::int64_t hd) {
  const std::int64_t padded = (T + kTile - 1) / kTile * kTile;
  return line_of_floats(6 * padded * hd + 2 * kTile * kTile + 2 * kTile * hd + 2 * padded);
}

void CpuOps::k_attn_fwd(act_t* out, float* lse, const act_t* qkv, std::int64_t B, std::int64_t T,
                        std::int64_t H, std::int64_t hd) {
  const std::int64_t d = H * hd, distance = 3 * d;
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(hd));
  parallel_for(threads_, B * H, [&](std::int64_t head, int thread) {
    const std::int64_t b = head / H, h = head % H;
    const float* q = floats(qkv) + b * T * distance + h * hd;
    float* k_columns = workspace(thread, attention_workspace_floats(T, hd));  // [hd, T]
    float* v_rows = k_columns + hd * T;                                       // [T, hd]
    float* q_rows = v_rows + T * hd;                                          // [kTile, hd], scaled
    float* total_out = q_rows + kTile * hd;                                   // [kTile, hd]
    float* scores = total_out + kTile * hd;                                   // [kTile, kTile]
    pack_columns(k_columns, T, q + d, distance, T, hd);
    pack_rows(v_rows, q + 2 * d, distance, T, hd, 1.0f);
    for (std::int64_t first = 0; first < T; first += kTile) {
      const std::int64_t queries = smaller(kTile, T - first);
      float top[kTile], totals[kTile * kLanes];
      for (std::int64_t i = 0; i < queries; ++i) top[i] = kLowest;
      for (float& total : totals) total = 0;
      std::memset(total_out, 0, static_cast<std::size_t>(queries * hd) * sizeof(float));
      pack_rows(q_rows, q + first * distance, distance, queries, hd, scale);
      for (std::int64_t key = 0; key <= first; key += kTile) {
        const bool diagonal = key == first;
        const std::int64_t keys = smaller(kTile, T - key);
        tile_product(scores, kTile, {q_rows, hd, 1}, k_columns + key, T, queries, keys, hd, false,
                     diagonal ? Shape::kLowerC : Shape::kFull);
        for (std::int64_t i = 0; i < queries; ++i)
          softmax_row(scores + i * kTile, seen_keys(diagonal, i, keys), keys, &top[i], totals + i * kLanes,
                      total_out + i * hd, hd);
        tile_product(total_out, hd, {scores, kTile, 1}, v_rows + key * hd, hd, queries, hd, keys, true,
                     diagonal ? Shape::kLowerA : Shape::kFull);
      }
      for (std::int64_t i = 0; i < queries; ++i) {
        const float total = sum(load(totals + i * kLanes));
        const Vec inverse = splat(1.0f / total);
        float* to = floats(out) + (b * T + first + i) * d + h * hd;
        for_each_vec(hd, [&](std::int64_t e, auto... n) {
          store(to + e, load(total_out + i * hd + e, n...) * inverse, n...);
        });
        lse[head * T + first + i] =
            static_cast<float>(static_cast<double>(top[i]) + ::log(static_cast<double>(total)));
      }
    }
  });
}

void CpuOps::k_attn_bwd(act_t* dqkv, const act_t* dout, const act_t* out, const act_t* qkv, const float* lse,
                        std::int64_t B, std::int64_t T, std::int64_t H, std::int64_t hd) {
  const std::int64_t d = H * hd, distance = 3 * d;
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(hd));
  parallel_for(threads_, B * H, [&](std::int64_t head, int thread) {
    const std::int64_t b = head / H, h = head % H;
    const float* q = floats(qkv) + b * T * distance + h * hd;
    float* dq = floats(dqkv) + b * T * distance + h * hd;
    const float* head_dout = floats(dout) + b * T * d + h * hd;
    const float* head_out = floats(out) + b * T * d + h * hd;
    float* k_columns = workspace(thread, attention_workspace_floats(T, hd));  // [hd, T]
    float* v_columns = k_columns + hd * T;                                    // [hd, T]
    float* q_rows = v_columns + hd * T;                                       // [T, hd], scaled
    float* k_rows = q_rows + T * hd;                                          // [T, hd], scaled
    float* dout_rows = k_rows + T * hd;                                       // [T, hd]
    float* dq_rows = dout_rows + T * hd;                                      // [T, hd]
    float* weights = dq_rows + T * hd;                                        // [kTile, kTile]
    float* gradients = weights + kTile * kTile;                               // [kTile, kTile]
    float* dk = gradients + kTile * kTile;                                    // [kTile, hd]
    float* dv = dk + kTile * hd;                                              // [kTile, hd]
    float* dots = dv + kTile * hd;                                            // [T], D_t
    pack_columns(k_columns, T, q + d, distance, T, hd);
    pack_columns(v_columns, T, q + 2 * d, distance, T, hd);
    pack_rows(q_rows, q, distance, T, hd, scale);
    pack_rows(k_rows, q + d, distance, T, hd, scale);
    pack_rows(dout_rows, head_dout, d, T, hd, 1.0f);
    for (std::int64_t t = 0; t < T; ++t)
      dots[t] = sum_over(hd, [&](std::int64_t i, auto... n) {
        return load(head_dout + t * d + i, n...) * load(head_out + t * d + i, n...);
      });
    for (std::int64_t key = 0; key < T; key += kTile) {
      const std::int64_t keys = smaller(kTile, T - key);
      for (std::int64_t first = key; first < T; first += kTile) {
        const bool diagonal = key == first, add = !diagonal;  // the diagonal tile is the first of its keys
        const std::int64_t queries = smaller(kTile, T - first);
        const Shape c_shape = diagonal ? Shape::kLowerC : Shape::kFull;
        tile_product(weights, kTile, {q_rows + first * hd, hd, 1}, k_columns + key, T, queries, keys, hd,
                     false, c_shape);
        tile_product(gradients, kTile, {dout_rows + first * hd, hd, 1}, v_columns + key, T, queries, keys, hd,
                     false, c_shape);
        for (std::int64_t i = 0; i < queries; ++i) {
          float *w = weights + i * kTile, *g = gradients + i * kTile;
          const Vec shift = splat(lse[head * T + first + i]), dot = splat(dots[first + i]);
          const std::int64_t seen = seen_keys(diagonal, i, keys);
          for_each_vec(seen, [&](std::int64_t j, auto... n) {
            const Vec weight = exp(load(w + j, n...) - shift);
            store(w + j, weight, n...);
            store(g + j, weight * (load(g + j, n...) - dot), n...);
          });
          for (std::int64_t j = seen; j < keys; ++j) w[j] = 0, g[j] = 0;
        }
        const Shape transposed = diagonal ? Shape::kUpperA : Shape::kFull;
        tile_product(dv, hd, {weights, 1, kTile}, dout_rows + first * hd, hd, keys, hd, queries, add,
                     transposed);
        tile_product(dk, hd, {gradients, 1, kTile}, q_rows + first * hd, hd, keys, hd, queries, add,
                     transposed);
        tile_product(dq_rows + first * hd, hd, {gradients, kTile, 1}, k_rows + key * hd, hd, queries, hd,
                     keys, key != 0, diagonal ? Shape::kLowerA : Shape::kFull);
      }
      unpack_rows(dq + d + key * distance, distance, dk, keys, hd);
      unpack_rows(dq + 2 * d + key * distance, distance, dv, keys, hd);
    }
    unpack_rows(dq, distance, dq_rows, T, hd);
  });
}

}  // namespace andrea::ANDREA_CPU_PATH
