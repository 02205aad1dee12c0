// y = (x - mean) rstd gamma + beta over each row of d, rstd = 1 / sqrt(variance + 1e-5).
//
// Saves mean and rstd. With n = (x - mean) rstd and g = dy gamma the gradients are
//   dx = rstd (g - mean(g) - n mean(g n)),  dgamma = sum over rows of dy n,  dbeta = sum over rows of dy.
// The sums over rows are made in fixed blocks of rows and then over the blocks in order.
// Costs: forward reads x and writes y, backward reads dy and x and writes dx; scratch 2 d floats a block.
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vec.h"

namespace andrea::ANDREA_CPU_PATH {
namespace {

constexpr float kEps = 1e-5f;
constexpr std::int64_t kRowsAPiece = 16;
constexpr std::int64_t kMaxBlocks = 64;

std::int64_t rows_a_block(std::int64_t rows) { return larger(kRowsAPiece, pieces_of(rows, kMaxBlocks)); }

struct Moments {
  float mean, rstd;
};

Moments moments(const float* x, std::int64_t d) {
  const float mean = sum_over(d, [&](std::int64_t i, auto... count) { return load(x + i, count...); }) /
                     static_cast<float>(d);
  const Vec shift = splat(mean);
  const float squares = sum_over(d, [&](std::int64_t i, auto... count) {
    Vec centred = load(x + i, count...) - shift;
    if constexpr (sizeof...(count) > 0) centred = keep(centred, count..., zero());
    return centred * centred;
  });
  return {mean, 1.0f / __builtin_sqrtf(squares / static_cast<float>(d) + kEps)};
}

}  // namespace

std::int64_t layernorm_shared_floats(std::int64_t rows, std::int64_t d) {
  return pieces_of(rows, rows_a_block(rows)) * 2 * d;
}

void CpuOps::k_layernorm_fwd(act_t* y, float* mean, float* rstd, const act_t* x, const float* gamma,
                             const float* beta, std::int64_t rows, std::int64_t d) {
  parallel_pieces(threads_, rows, kRowsAPiece, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t r = first; r < first + count; ++r) {
      const float* in = floats(x) + r * d;
      float* out = floats(y) + r * d;
      const Moments m = moments(in, d);
      const Vec shift = splat(m.mean), scale = splat(m.rstd);
      for_each_vec(d, [&](std::int64_t i, auto... n) {
        const Vec normal = (load(in + i, n...) - shift) * scale;
        store(out + i, fma(normal, load(gamma + i, n...), load(beta + i, n...)), n...);
      });
      mean[r] = m.mean;
      rstd[r] = m.rstd;
    }
  });
}

void CpuOps::k_layernorm_bwd(act_t* dx, float* dgamma, float* dbeta, const act_t* dy, const act_t* x,
                             const float* gamma, const float* mean, const float* rstd, std::int64_t rows,
                             std::int64_t d, bool add_to_dx, bool accumulate) {
  const std::int64_t block = rows_a_block(rows), blocks = pieces_of(rows, block);
  float* partials = shared();  // [blocks, 2, d]
  parallel_for(threads_, blocks, [&](std::int64_t piece, int) {
    float* gamma_sum = partials + piece * 2 * d;
    float* beta_sum = gamma_sum + d;
    for (std::int64_t i = 0; i < 2 * d; ++i) gamma_sum[i] = 0;
    for (std::int64_t r = piece * block; r < smaller(rows, (piece + 1) * block); ++r) {
      const float *in = floats(x) + r * d, *g_in = floats(dy) + r * d;
      float* out = floats(dx) + r * d;
      const Vec shift = splat(mean[r]), scale = splat(rstd[r]);
      // Lanes past the end have dy = 0, so their terms are zero.
      const float mean_g =
          sum_over(d,
                   [&](std::int64_t i, auto... n) { return load(g_in + i, n...) * load(gamma + i, n...); }) /
          static_cast<float>(d);
      const float mean_gn = sum_over(d,
                                     [&](std::int64_t i, auto... n) {
                                       const Vec normal = (load(in + i, n...) - shift) * scale;
                                       return load(g_in + i, n...) * load(gamma + i, n...) * normal;
                                     }) /
                            static_cast<float>(d);
      for_each_vec(d, [&](std::int64_t i, auto... n) {
        const Vec gradient = load(g_in + i, n...);
        const Vec normal = (load(in + i, n...) - shift) * scale;
        store(gamma_sum + i, fma(gradient, normal, load(gamma_sum + i, n...)), n...);
        store(beta_sum + i, load(beta_sum + i, n...) + gradient, n...);
        const Vec g = gradient * load(gamma + i, n...) - splat(mean_g);
        const Vec value = fma(normal, splat(-mean_gn), g) * scale;
        store(out + i, add_to_dx ? load(out + i, n...) + value : value, n...);
      });
    }
  });
  parallel_pieces(threads_, d, 64, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t c = first; c < first + count; ++c) {
      float gamma_total = 0, beta_total = 0;
      for (std::int64_t piece = 0; piece < blocks; ++piece) {
        gamma_total += partials[piece * 2 * d + c];
        beta_total += partials[piece * 2 * d + d + c];
      }
      dgamma[c] = accumulate ? dgamma[c] + gamma_total : gamma_total;
      dbeta[c] = accumulate ? dbeta[c] + beta_total : beta_total;
    }
  });
}

}  // namespace andrea::ANDREA_CPU_PATH
