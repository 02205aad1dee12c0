// h = x W_1^T, g = gelu(h) (tanh form), out = residual + g W_2^T.
//
// Saves h and g, or h alone and g is computed again. Gradients: dh = (dout W_2) gelu'(h), dW_2 (+)= dout^T g,
// dW_1 (+)= dh^T x, dx = dh W_1. GELU and its derivative are applied to each tile of a product while it is in
// the cache. Costs 16 rows d^2 FLOP forward and twice that backward. A tile's bits depend on nothing but the
// shape, and no two tiles meet.
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vec_math.h"

namespace andrea::ANDREA_CPU_PATH {

void CpuOps::k_mlp_fwd(act_t* out, act_t* h, act_t* g, const act_t* x, const act_t* w_1, const act_t* w_2,
                       const act_t* residual, std::int64_t rows, std::int64_t d) {
  const std::int64_t width = 4 * d;
  constexpr std::int64_t kFewRows = 8;
  if (rows <= kFewRows) {
    linear(floats(h), floats(x), floats(w_1), nullptr, rows, width, d);
    for_each_vec(rows * width, [&](std::int64_t i, auto... n) {
      store(floats(g) + i, gelu(load(floats(h) + i, n...)), n...);
    });
  } else {
    const Tiling tiling(rows, width);
    parallel_for(threads_, tiling.count(), [&](std::int64_t i, int) {
      const Tile tile = tiling.tile(i);
      float* pre = floats(h) + tile.row * width + tile.column;
      float* post = floats(g) + tile.row * width + tile.column;
      multiply_tile(pre, width, {floats(x), d, false}, {floats(w_1), d, true}, tile, d, false);
      for (std::int64_t r = 0; r < tile.rows; ++r)
        for_each_vec(tile.columns, [&](std::int64_t j, auto... n) {
          store(post + r * width + j, gelu(load(pre + r * width + j, n...)), n...);
        });
    });
  }
  linear(floats(out), floats(g), floats(w_2), floats(residual), rows, d, width);
}

void CpuOps::k_mlp_bwd(act_t* dx, float* dw_1, float* dw_2, act_t* dh, const act_t* dout, const act_t* x,
                       const act_t* h, act_t* g, const act_t* w_1, const act_t* w_2, std::int64_t rows,
                       std::int64_t d, bool recompute_g, bool accumulate) {
  const std::int64_t width = 4 * d;
  const Tiling tiling(rows, width);
  parallel_for(threads_, tiling.count(), [&](std::int64_t i, int thread) {
    const Tile tile = tiling.tile(i);
    const std::int64_t at = tile.row * width + tile.column;
    // dh may be h, so the product goes to a tile of its own first.
    float* dg = workspace(thread, Tiling::kMaxRows * Tiling::kMaxColumns);
    multiply_tile(dg, tile.columns, {floats(dout), d, false}, {floats(w_2), width, false}, tile, d, false);
    for (std::int64_t r = 0; r < tile.rows; ++r) {
      const float* pre = floats(h) + at + r * width;
      float* post = floats(g) + at + r * width;
      float* gradient = floats(dh) + at + r * width;
      for_each_vec(tile.columns, [&](std::int64_t j, auto... n) {
        const GeluPoint point = gelu_with_derivative(load(pre + j, n...));
        if (recompute_g) store(post + j, point.value, n...);
        store(gradient + j, load(dg + r * tile.columns + j, n...) * point.derivative, n...);
      });
    }
  });
  linear_weight_gradient(dw_2, floats(dout), floats(g), rows, d, width, accumulate);
  linear_weight_gradient(dw_1, floats(dh), floats(x), rows, width, d, accumulate);
  linear_input_gradient(floats(dx), floats(dh), floats(w_1), rows, width, d);
}

}  // namespace andrea::ANDREA_CPU_PATH
