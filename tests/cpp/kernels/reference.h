// What each operation means, in float64, as plainly as it can be written. The suites compare against this.
#pragma once

#include <cstdint>
#include <vector>

namespace andrea::reference {

using Doubles = std::vector<double>;

/// c [m, n] = a [m, k] b[n, k]^T
Doubles matmul_nt(const Doubles& a, const Doubles& b, std::int64_t m, std::int64_t n, std::int64_t k);
/// c [m, n] = a [m, k] b [k, n]
Doubles matmul_nn(const Doubles& a, const Doubles& b, std::int64_t m, std::int64_t n, std::int64_t k);
/// c [m, n] = a[k, m]^T b [k, n]
Doubles matmul_tn(const Doubles& a, const Doubles& b, std::int64_t m, std::int64_t n, std::int64_t k);
Doubles add(const Doubles& a, const Doubles& b);

struct LayerNorm {
  Doubles y, mean, rstd;
};
LayerNorm layernorm(const Doubles& x, const Doubles& gamma, const Doubles& beta, std::int64_t d);

struct LayerNormGradients {
  Doubles dx, dgamma, dbeta;
};
LayerNormGradients layernorm_backward(const Doubles& dy, const Doubles& x, const Doubles& gamma,
                                      std::int64_t d);

struct Attention {
  Doubles out;  ///< [B, T, H, hd]
  Doubles lse;  ///< [B, H, T]
};
/// qkv [B, T, 3, H, hd], causal.
Attention attention(const Doubles& qkv, std::int64_t B, std::int64_t T, std::int64_t H, std::int64_t hd);
Doubles attention_backward(const Doubles& dout, const Doubles& qkv, std::int64_t B, std::int64_t T,
                           std::int64_t H, std::int64_t hd);

double gelu(double x);
double gelu_derivative(double x);

struct Mlp {
  Doubles out, h, g;  ///< out without a residual
};
Mlp mlp(const Doubles& x, const Doubles& w_1, const Doubles& w_2, std::int64_t rows, std::int64_t d);

struct MlpGradients {
  Doubles dx, dw_1, dw_2;
};
/// From the saved h, as the back ends do.
MlpGradients mlp_backward(const Doubles& dout, const Doubles& x, const Doubles& h, const Doubles& w_1,
                          const Doubles& w_2, std::int64_t rows, std::int64_t d);

struct Loss {
  Doubles losses;   ///< [rows]
  Doubles dlogits;  ///< [rows, Vp], of the sum of losses
};
Loss cross_entropy(const Doubles& logits, const std::vector<std::int32_t>& targets, std::int64_t V,
                   std::int64_t Vp);

/// x as E4M3 holds it: 3 bits behind the point, steps of at least 2^-9, at most 448; to the nearest, ties to
/// the even one. x is finite.
double e4m3(double x);
/// Each x as a factor of an FP8 product: E4M3 after scaling with the largest power of two at which none of
/// them goes beyond 448, and scaled back.
Doubles fp8_factor(Doubles x);

}  // namespace andrea::reference
