// The head: logits [rows, Vp] = x W^T, W [Vp, d] with zero rows V..Vp-1, so padding logits are exactly zero.
//
// Gradients: dx = dlogits W, dW (+)= dlogits^T x. Costs 2 rows Vp d FLOP forward and twice that backward.
#include "kernels/cpu/cpu_ops.h"

namespace andrea::ANDREA_CPU_PATH {

void CpuOps::k_head_fwd(act_t* logits, const act_t* x, const act_t* w, std::int64_t rows, std::int64_t d,
                        std::int64_t Vp) {
  linear(floats(logits), floats(x), floats(w), nullptr, rows, Vp, d);
}

void CpuOps::k_head_bwd(act_t* dx, float* dw, const act_t* dlogits, const act_t* x, const act_t* w,
                        std::int64_t rows, std::int64_t d, std::int64_t Vp, bool accumulate) {
  linear_weight_gradient(dw, floats(dlogits), floats(x), rows, Vp, d, accumulate);
  linear_input_gradient(floats(dx), floats(dlogits), floats(w), rows, Vp, d);
}

}  // namespace andrea::ANDREA_CPU_PATH
