// Attention of one new token a sequence over the keys and values kept so far.
//
// The token's k and v go to `position` of the cache first; then out = sum over s <= position of p_s v_s with
// p = softmax(q k_s / sqrt(hd)). A head of a sequence is one thread's work, keys in their order. Costs: the
// visible part of the cache is read once, 4 B d (position + 1) FLOP.
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vec_math.h"

namespace andrea::ANDREA_CPU_PATH {

void CpuOps::k_attn_decode_fwd(act_t* out, act_t* kv_cache, const act_t* qkv, const std::int32_t* position,
                               std::int64_t B, std::int64_t T_max, std::int64_t H, std::int64_t hd) {
  const std::int64_t d = H * hd, at = *position, seen = at + 1;
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(hd));
  const std::size_t head_bytes = static_cast<std::size_t>(hd) * sizeof(float);
  parallel_for(threads_, B * H, [&](std::int64_t head, int thread) {
    const std::int64_t b = head / H, h = head % H;
    const float* q = floats(qkv) + b * 3 * d + h * hd;
    float* keys = floats(kv_cache) + b * T_max * d + h * hd;
    float* values = keys + B * T_max * d;
    float* to = floats(out) + b * d + h * hd;
    float* weights = workspace(thread, attention_workspace_floats(T_max, hd));  // [seen]
    std::memcpy(keys + at * d, q + d, head_bytes);
    std::memcpy(values + at * d, q + 2 * d, head_bytes);
    float top = 0;
    for (std::int64_t s = 0; s < seen; ++s) {
      weights[s] = scale * sum_over(hd, [&](std::int64_t i, auto... n) {
                     return load(q + i, n...) * load(keys + s * d + i, n...);
                   });
      if (s == 0 || weights[s] > top) top = weights[s];
    }
    const Vec shift = splat(top);
    const float total = sum_over(seen, [&](std::int64_t s, auto... n) {
      Vec weight = exp(load(weights + s, n...) - shift);
      if constexpr (sizeof...(n) > 0) weight = keep(weight, n..., zero());
      store(weights + s, weight, n...);
      return weight;
    });
    for (std::int64_t i = 0; i < hd; ++i) to[i] = 0;
    for (std::int64_t s = 0; s < seen; ++s) {
      const Vec weight = splat(weights[s] / total);
      for_each_vec(hd, [&](std::int64_t i, auto... n) {
        store(to + i, fma(weight, load(values + s * d + i, n...), load(to + i, n...)), n...);
      });
    }
  });
}

}  // namespace andrea::ANDREA_CPU_PATH
