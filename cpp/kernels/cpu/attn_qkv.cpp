// Q, K, V projections in one product: qkv [rows, 3, H, hd] = x W^T with W = W_Q|W_K|W_V [3d, d].
//
// Gradients: dx = dqkv W, dW (+)= dqkv^T x. Costs 6 rows d^2 FLOP forward and twice that backward.
#include "kernels/cpu/cpu_ops.h"

namespace andrea::ANDREA_CPU_PATH {

void CpuOps::k_attn_qkv_fwd(act_t* qkv, const act_t* x, const act_t* w_qkv, std::int64_t rows,
                            std::int64_t d) {
  linear(floats(qkv), floats(x), floats(w_qkv), nullptr, rows, 3 * d, d);
}

void CpuOps::k_attn_qkv_bwd(act_t* dx, float* dw_qkv, const act_t* dqkv, const act_t* x, const act_t* w_qkv,
                            std::int64_t rows, std::int64_t d, bool accumulate) {
  linear_weight_gradient(dw_qkv, floats(dqkv), floats(x), rows, 3 * d, d, accumulate);
  linear_input_gradient(floats(dx), floats(dqkv), floats(w_qkv), rows, 3 * d, d);
}

}  // namespace andrea::ANDREA_CPU_PATH
