// Cross entropy: losses[r] = log(sum over v < V of exp(logits)) - logits[target], in nats.
//
// Backward: dlogits = (softmax - onehot) scale loss_scale, zero in the padding columns V..Vp-1, which are
// never read. Nothing is saved: the fused form makes loss and gradient in one visit to the row, in place. A
// row is one thread's work from start to end. Costs: 4 bytes read and 4 written an element, one exp. A NaN or
// infinity anywhere in a row reaches its loss through the sum.
#include <cmath>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vec_math.h"

namespace andrea::ANDREA_CPU_PATH {
namespace {

constexpr std::int64_t kRowsAPiece = 4;

float largest_of(const float* row, std::int64_t n) {
  Vec top = splat(row[0]);
  for_each_vec(n, [&](std::int64_t i, auto... count) {
    Vec value = load(row + i, count...);
    if constexpr (sizeof...(count) > 0) value = keep(value, count..., top);
    top = max(value, top);
  });
  return largest(top);
}

// out = exp(row - top), returns the sum. out may be row, or null if only the sum is wanted.
float exponentials(float* out, const float* row, float top, std::int64_t n) {
  const Vec shift = splat(top);
  return sum_over(n, [&](std::int64_t i, auto... count) {
    Vec value = exp(load(row + i, count...) - shift);
    if constexpr (sizeof...(count) > 0) value = keep(value, count..., zero());
    if (out != nullptr) store(out + i, value, count...);
    return value;
  });
}

float loss_of(float top, float total, float target) {
  return static_cast<float>((static_cast<double>(top) - target) + ::log(static_cast<double>(total)));
}

// Turns exponentials into the gradient.
void finish_gradient(float* row, float total, std::int32_t target, float factor, std::int64_t V,
                     std::int64_t Vp) {
  const Vec scale = splat(factor / total);
  for_each_vec(V, [&](std::int64_t i, auto... n) { store(row + i, load(row + i, n...) * scale, n...); });
  row[target] -= factor;
  for (std::int64_t v = V; v < Vp; ++v) row[v] = 0;
}

}  // namespace

void CpuOps::k_loss_fwd(float* losses, const act_t* logits, const std::int32_t* targets, std::int64_t rows,
                        std::int64_t V, std::int64_t Vp) {
  parallel_pieces(threads_, rows, kRowsAPiece, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t r = first; r < first + count; ++r) {
      const float* row = floats(logits) + r * Vp;
      const float top = largest_of(row, V);
      losses[r] = loss_of(top, exponentials(nullptr, row, top, V), row[targets[r]]);
    }
  });
}

void CpuOps::k_loss_bwd(act_t* dlogits, const act_t* logits, const std::int32_t* targets, float scale,
                        const StepStatus* status, std::int64_t rows, std::int64_t V, std::int64_t Vp) {
  const float factor = scale * status->loss_scale;
  parallel_pieces(threads_, rows, kRowsAPiece, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t r = first; r < first + count; ++r) {
      const float* row = floats(logits) + r * Vp;
      float* out = floats(dlogits) + r * Vp;
      const float total = exponentials(out, row, largest_of(row, V), V);
      finish_gradient(out, total, targets[r], factor, V, Vp);
    }
  });
}

void CpuOps::k_loss_fwd_bwd(float* losses, act_t* logits, const std::int32_t* targets, float scale,
                            const StepStatus* status, std::int64_t rows, std::int64_t V, std::int64_t Vp) {
  const float factor = scale * status->loss_scale;
  parallel_pieces(threads_, rows, kRowsAPiece, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t r = first; r < first + count; ++r) {
      float* row = floats(logits) + r * Vp;
      const float target = row[targets[r]], top = largest_of(row, V);
      const float total = exponentials(row, row, top, V);
      losses[r] = loss_of(top, total, target);
      finish_gradient(row, total, targets[r], factor, V, Vp);
    }
  });
}

void CpuOps::k_row_loss(float* row_losses, const float* losses, std::int64_t B, std::int64_t T) {
  parallel_for(threads_, B, [&](std::int64_t b, int) {
    double total = 0;
    for (std::int64_t t = 0; t < T; ++t) total += losses[b * T + t];
    row_losses[b] = static_cast<float>(total / static_cast<double>(T));
  });
}

}  // namespace andrea::ANDREA_CPU_PATH
