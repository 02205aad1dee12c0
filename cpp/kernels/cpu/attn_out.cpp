// W_O: out = residual + att W_O^T, the residual added inside the product.
//
// Gradients: datt = dout W_O, dW_O (+)= dout^T att; the residual's gradient is dout itself.
// Costs 2 rows d^2 FLOP forward and twice that backward.
#include "kernels/cpu/cpu_ops.h"

namespace andrea::ANDREA_CPU_PATH {

void CpuOps::k_attn_out_fwd(act_t* out, const act_t* att, const act_t* w_o, const act_t* residual,
                            std::int64_t rows, std::int64_t d) {
  linear(floats(out), floats(att), floats(w_o), floats(residual), rows, d, d);
}

void CpuOps::k_attn_out_bwd(act_t* datt, float* dw_o, const act_t* dout, const act_t* att, const act_t* w_o,
                            std::int64_t rows, std::int64_t d, bool accumulate) {
  linear_weight_gradient(dw_o, floats(dout), floats(att), rows, d, d, accumulate);
  linear_input_gradient(floats(datt), floats(dout), floats(w_o), rows, d, d);
}

}  // namespace andrea::ANDREA_CPU_PATH
