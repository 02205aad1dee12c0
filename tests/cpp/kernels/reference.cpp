#include "reference.h"

#include <algorithm>
#include <cmath>

namespace andrea::reference {

Doubles matmul_nt(const Doubles& a, const Doubles& b, std::int64_t m, std::int64_t n, std::int64_t k) {
  Doubles c(m * n, 0.0);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t l = 0; l < k; ++l) c[i * n + j] += a[i * k + l] * b[j * k + l];
  return c;
}

Doubles matmul_nn(const Doubles& a, const Doubles& b, std::int64_t m, std::int64_t n, std::int64_t k) {
  Doubles c(m * n, 0.0);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t l = 0; l < k; ++l)
      for (std::int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + l] * b[l * n + j];
  return c;
}

Doubles matmul_tn(const Doubles& a, const Doubles& b, std::int64_t m, std::int64_t n, std::int64_t k) {
  Doubles c(m * n, 0.0);
  for (std::int64_t l = 0; l < k; ++l)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) c[i * n + j] += a[l * m + i] * b[l * n + j];
  return c;
}

Doubles add(const Doubles& a, const Doubles& b) {
  Doubles c(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) c[i] = a[i] + b[i];
  return c;
}

LayerNorm layernorm(const Doubles& x, const Doubles& gamma, const Doubles& beta, std::int64_t d) {
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / d;
  LayerNorm result{Doubles(x.size()), Doubles(rows), Doubles(rows)};
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum = 0, squares = 0;
    for (std::int64_t c = 0; c < d; ++c) sum += x[r * d + c];
    const double mean = sum / static_cast<double>(d);
    for (std::int64_t c = 0; c < d; ++c) squares += (x[r * d + c] - mean) * (x[r * d + c] - mean);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(d) + 1e-5);
    for (std::int64_t c = 0; c < d; ++c)
      result.y[r * d + c] = (x[r * d + c] - mean) * rstd * gamma[c] + beta[c];
    result.mean[r] = mean;
    result.rstd[r] = rstd;
  }
  return result;
}

LayerNormGradients layernorm_backward(const Doubles& dy, const Doubles& x, const Doubles& gamma,
                                      std::int64_t d) {
  const std::int64_t rows = static_cast<std::int64_t>(x.size()) / d;
  const LayerNorm saved = layernorm(x, gamma, Doubles(d, 0.0), d);
  LayerNormGradients result{Doubles(x.size()), Doubles(d, 0.0), Doubles(d, 0.0)};
  for (std::int64_t r = 0; r < rows; ++r) {
    double mean_g = 0, mean_gx = 0;
    for (std::int64_t c = 0; c < d; ++c) {
      const double normal = (x[r * d + c] - saved.mean[r]) * saved.rstd[r];
      const double g = dy[r * d + c] * gamma[c];
      mean_g += g / static_cast<double>(d);
      mean_gx += g * normal / static_cast<double>(d);
      result.dgamma[c] += dy[r * d + c] * normal;
      result.dbeta[c] += dy[r * d + c];
    }
    for (std::int64_t c = 0; c < d; ++c) {
      const double normal = (x[r * d + c] - saved.mean[r]) * saved.rstd[r];
      result.dx[r * d + c] = saved.rstd[r] * (dy[r * d + c] * gamma[c] - mean_g - normal * mean_gx);
    }
  }
  return result;
}

namespace {

// Where [b, t, part, h, 0] of qkv [B, T, 3, H, hd] is; part 0 Q, 1 K, 2 V.
struct QkvIndex {
  std::int64_t T, H, hd;
  std::int64_t operator()(std::int64_t b, std::int64_t t, std::int64_t part, std::int64_t h) const {
    return (((b * T + t) * 3 + part) * H + h) * hd;
  }
};

// Probabilities of the keys 0..t seen by query t, and the log of their sum.
Doubles probabilities(const Doubles& qkv, const QkvIndex& at, std::int64_t b, std::int64_t t, std::int64_t h,
                      double* lse) {
  Doubles p(t + 1, 0.0);
  const double scale = 1 / std::sqrt(static_cast<double>(at.hd));
  for (std::int64_t s = 0; s <= t; ++s)
    for (std::int64_t e = 0; e < at.hd; ++e)
      p[s] += scale * qkv[at(b, t, 0, h) + e] * qkv[at(b, s, 1, h) + e];
  const double top = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (double& value : p) sum += value = std::exp(value - top);
  for (double& value : p) value /= sum;
  *lse = top + std::log(sum);
  return p;
}

}  // namespace

Attention attention(const Doubles& qkv, std::int64_t B, std::int64_t T, std::int64_t H, std::int64_t hd) {
  const QkvIndex at{T, H, hd};
  Attention result{Doubles(B * T * H * hd, 0.0), Doubles(B * H * T)};
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t h = 0; h < H; ++h)
      for (std::int64_t t = 0; t < T; ++t) {
        const Doubles p = probabilities(qkv, at, b, t, h, &result.lse[(b * H + h) * T + t]);
        for (std::int64_t s = 0; s <= t; ++s)
          for (std::int64_t e = 0; e < hd; ++e)
            result.out[((b * T + t) * H + h) * hd + e] += p[s] * qkv[at(b, s, 2, h) + e];
      }
  return result;
}

Doubles attention_backward(const Doubles& dout, const Doubles& qkv, std::int64_t B, std::int64_t T,
                           std::int64_t H, std::int64_t hd) {
  const QkvIndex at{T, H, hd};
  const double scale = 1 / std::sqrt(static_cast<double>(hd));
  Doubles dqkv(qkv.size(), 0.0);
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t h = 0; h < H; ++h)
      for (std::int64_t t = 0; t < T; ++t) {
        double lse = 0;
        const Doubles p = probabilities(qkv, at, b, t, h, &lse);
        const double* g = &dout[((b * T + t) * H + h) * hd];
        Doubles dp(t + 1, 0.0);
        double dot = 0;
        for (std::int64_t s = 0; s <= t; ++s) {
          for (std::int64_t e = 0; e < hd; ++e) dp[s] += g[e] * qkv[at(b, s, 2, h) + e];
          dot += p[s] * dp[s];
        }
        for (std::int64_t s = 0; s <= t; ++s) {
          const double ds = p[s] * (dp[s] - dot) * scale;
          for (std::int64_t e = 0; e < hd; ++e) {
            dqkv[at(b, t, 0, h) + e] += ds * qkv[at(b, s, 1, h) + e];
            dqkv[at(b, s, 1, h) + e] += ds * qkv[at(b, t, 0, h) + e];
            dqkv[at(b, s, 2, h) + e] += p[s] * g[e];
          }
        }
      }
  return dqkv;
}

namespace {
const double kGeluScale = std::sqrt(2 / std::acos(-1.0));
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(kGeluScale * (x + 0.044715 * x * x * x))); }

double gelu_derivative(double x) {
  const double tanh = std::tanh(kGeluScale * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * kGeluScale * (1 + 3 * 0.044715 * x * x);
}

Mlp mlp(const Doubles& x, const Doubles& w_1, const Doubles& w_2, std::int64_t rows, std::int64_t d) {
  Mlp result;
  result.h = matmul_nt(x, w_1, rows, 4 * d, d);
  result.g.resize(result.h.size());
  std::transform(result.h.begin(), result.h.end(), result.g.begin(), gelu);
  result.out = matmul_nt(result.g, w_2, rows, d, 4 * d);
  return result;
}

MlpGradients mlp_backward(const Doubles& dout, const Doubles& x, const Doubles& h, const Doubles& w_1,
                          const Doubles& w_2, std::int64_t rows, std::int64_t d) {
  Doubles g(h.size());
  std::transform(h.begin(), h.end(), g.begin(), gelu);
  Doubles dh = matmul_nn(dout, w_2, rows, 4 * d, d);
  for (std::size_t i = 0; i < dh.size(); ++i) dh[i] *= gelu_derivative(h[i]);
  return {matmul_nn(dh, w_1, rows, d, 4 * d), matmul_tn(dh, x, 4 * d, d, rows),
          matmul_tn(dout, g, d, 4 * d, rows)};
}

Loss cross_entropy(const Doubles& logits, const std::vector<std::int32_t>& targets, std::int64_t V,
                   std::int64_t Vp) {
  const std::int64_t rows = static_cast<std::int64_t>(targets.size());
  Loss result{Doubles(rows), Doubles(rows * Vp, 0.0)};
  for (std::int64_t r = 0; r < rows; ++r) {
    const double* row = &logits[r * Vp];
    const double top = *std::max_element(row, row + V);
    double sum = 0;
    for (std::int64_t v = 0; v < V; ++v) sum += std::exp(row[v] - top);
    result.losses[r] = std::log(sum) + top - row[targets[r]];
    for (std::int64_t v = 0; v < V; ++v)
      result.dlogits[r * Vp + v] = std::exp(row[v] - top) / sum - (v == targets[r] ? 1 : 0);
  }
  return result;
}

double e4m3(double x) {
  const double size = std::fabs(x);
  const int exponent = size == 0 ? -6 : std::max(-6, std::ilogb(size));  // -6: of the smallest normal number
  const double step = std::ldexp(1, exponent - 3);
  return std::copysign(std::min(std::nearbyint(size / step) * step, 448.0), x);
}

Doubles fp8_factor(Doubles x) {
  double largest = 0;
  for (const double value : x) largest = std::max(largest, std::fabs(value));
  if (largest == 0) return x;
  int e = 8 - std::ilogb(largest);
  if (std::ldexp(largest, e) > 448) --e;
  for (double& value : x) value = std::ldexp(e4m3(std::ldexp(value, e)), -e);
  return x;
}

}  // namespace andrea::reference
