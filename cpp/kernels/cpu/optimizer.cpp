// Global norm, its decision, and AdamW.
//
//   norm = sqrt(sum g^2) / loss_scale, multiplier = min(1, clip / norm) / loss_scale
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   p -= lr (m / bc1 / (sqrt(v / bc2) + eps) + wd p)       with g = gradient * multiplier
//
// Squares are summed in float64 over fixed pieces, each by 16 running sums and a fixed tree. The rest is
// element by element. Costs: the norm reads 4 bytes an element, AdamW reads 16 and writes 12.
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vec.h"

namespace andrea::ANDREA_CPU_PATH {
namespace {

constexpr std::int64_t kNormPiece = 65536;

double sum_of_squares(const float* x, std::int64_t n) {
  double totals[16] = {};
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (std::int64_t j = 0; j < 16; ++j) {
      const double value = x[i + j];
      totals[j] += value * value;  // exact product, so fused or not it is the same
    }
  for (std::int64_t j = 0; i + j < n; ++j) {
    const double value = x[i + j];
    totals[j] += value * value;
  }
  for (std::int64_t width = 8; width > 0; width /= 2)
    for (std::int64_t j = 0; j < width; ++j) totals[j] += totals[j + width];
  return totals[0];
}

bool is_finite(float x) { return __builtin_fabsf(x) <= 3.40282347e38f; }  // false for NaN

}  // namespace

void CpuOps::k_zero_grads(float* grads, std::int64_t n) {
  parallel_pieces(threads_, n, kNormPiece, [&](std::int64_t first, std::int64_t count) {
    std::memset(grads + first, 0, static_cast<std::size_t>(count) * sizeof(float));
  });
}

std::int64_t CpuOps::grad_norm_partials(std::int64_t n) const { return pieces_of(n, kNormPiece); }

void CpuOps::k_grad_norm_partial(double* partials, const float* grads, std::int64_t n) {
  parallel_pieces(threads_, n, kNormPiece, [&](std::int64_t first, std::int64_t count) {
    partials[first / kNormPiece] = sum_of_squares(grads + first, count);
  });
}

void CpuOps::k_grad_norm_final(StepStatus* status, const double* partials, std::int64_t n_partials,
                               const float* row_losses, std::int64_t n_rows, const StepControl* control) {
  double squares = 0;
  for (std::int64_t i = 0; i < n_partials; ++i) squares += partials[i];
  const float scale = status->loss_scale;
  const float norm = static_cast<float>(::sqrt(squares) / scale);
  bool losses_finite = true;
  for (std::int64_t r = 0; r < n_rows; ++r) losses_finite = losses_finite && is_finite(row_losses[r]);
  const bool finite = losses_finite && is_finite(norm);
  const bool scaling = control->loss_scale_growth_interval > 0;

  status->grad_norm = norm;
  status->step_loss_scale = scale;
  status->apply = finite ? 1 : 0;
  status->scale_halved = 0;
  status->fp8_saturated = 0;
  if (finite) {
    const double coefficient =
        norm > control->clip_norm ? static_cast<double>(control->clip_norm) / norm : 1.0;
    status->grad_multiplier = static_cast<float>(coefficient / scale);
    status->good_steps = scaling ? status->good_steps + 1 : 0;
    if (scaling && status->good_steps >= control->loss_scale_growth_interval) {
      status->loss_scale = scale * 2;
      status->good_steps = 0;
    }
  } else {
    status->grad_multiplier = 0;
    status->good_steps = 0;
    // A loss is not scaled: when it is not finite, a smaller scale cures nothing.
    if (scaling && scale > 1 && losses_finite) {
      status->loss_scale = scale * 0.5f;
      status->scale_halved = 1;
    }
  }
}

void CpuOps::k_grad_scale(float* grads, const StepStatus* status, std::int64_t n) {
  const Vec factor = splat(status->grad_multiplier);
  parallel_pieces(threads_, n, kPiece, [&](std::int64_t first, std::int64_t count) {
    float* g = grads + first;
    for_each_vec(count, [&](std::int64_t i, auto... m) { store(g + i, load(g + i, m...) * factor, m...); });
  });
}

void CpuOps::k_adamw(float* params, float* m, float* v, act_t* compute_weights, const float* grads,
                     const StepControl* control, const StepStatus* status, std::int64_t n,
                     std::int64_t n_decay, std::int64_t n_compute) {
  if (status->apply == 0) return;
  const StepControl c = *control;
  const Vec multiplier = splat(status->grad_multiplier), eps = splat(c.eps);
  const Vec beta1 = splat(c.beta1), rest1 = splat(1.0f - c.beta1);
  const Vec beta2 = splat(c.beta2), rest2 = splat(1.0f - c.beta2);
  const Vec to_m_hat = splat(1.0f / c.bias_correction1);
  const Vec to_v_hat = splat(static_cast<float>(1.0 / ::sqrt(static_cast<double>(c.bias_correction2))));
  const Vec minus_rate = splat(-c.learning_rate);
  // One piece is all decayed or all not.
  const auto update = [&](std::int64_t first, std::int64_t count, float decay) {
    const Vec wd = splat(decay);
    parallel_pieces(threads_, count, kPiece, [&](std::int64_t offset, std::int64_t length) {
      const std::int64_t at = first + offset;
      for_each_vec(length, [&](std::int64_t j, auto... lanes) {
        const std::int64_t i = at + j;
        const Vec g = load(grads + i, lanes...) * multiplier, p = load(params + i, lanes...);
        const Vec new_m = fma(beta1, load(m + i, lanes...), rest1 * g);
        const Vec new_v = fma(beta2, load(v + i, lanes...), rest2 * g * g);
        const Vec direction = new_m * to_m_hat / fma(sqrt(new_v), to_v_hat, eps);
        store(m + i, new_m, lanes...);
        store(v + i, new_v, lanes...);
        store(params + i, fma(minus_rate, fma(wd, p, direction), p), lanes...);
      });
    });
  };
  update(0, n_decay, c.weight_decay);
  update(n_decay, n - n_decay, 0.0f);
  if (compute_weights != nullptr && n_compute > 0) k_cast_weights(compute_weights, params, n_compute);
}

}  // namespace andrea::ANDREA_CPU_PATH
