// out = a + b; backward both branches receive dout. Element by element: 12 bytes each, no order to keep.
//
// In the model the forward sum rides on k_attn_out_fwd and k_mlp_fwd, and the backward one on
// k_layernorm_bwd (add_to_dx), where the values are in registers anyway.
#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vec.h"

namespace andrea::ANDREA_CPU_PATH {

void CpuOps::k_residual_add(act_t* out, const act_t* a, const act_t* b, std::int64_t n) {
  parallel_pieces(threads_, n, kPiece, [&](std::int64_t first, std::int64_t count) {
    float* to = floats(out) + first;
    const float *left = floats(a) + first, *right = floats(b) + first;
    for_each_vec(count, [&](std::int64_t i, auto... m) {
      store(to + i, load(left + i, m...) + load(right + i, m...), m...);
    });
  });
}

void CpuOps::k_residual_add_bwd(act_t* da, act_t* db, const act_t* dout, std::int64_t n) {
  parallel_pieces(threads_, n, kPiece, [&](std::int64_t first, std::int64_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
    std::memcpy(floats(da) + first, floats(dout) + first, bytes);
    std::memcpy(floats(db) + first, floats(dout) + first, bytes);
  });
}

}  // namespace andrea::ANDREA_CPU_PATH
