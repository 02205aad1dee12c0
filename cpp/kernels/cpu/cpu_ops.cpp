// Scratch memory, and the casts, which on the CPU are copies: activations are float32.
#include "kernels/cpu/cpu_ops.h"

#include <cstring>

#include "kernels/cpu/parallel.h"

namespace andrea::ANDREA_CPU_PATH {

std::size_t CpuOps::scratch_bytes(const Extent& extent) const {
  const std::int64_t rows = extent.batch * extent.context;
  const std::int64_t hd = extent.d_model / larger(1, extent.n_head);
  const std::int64_t shared =
      larger(layernorm_shared_floats(rows, extent.d_model), embed_shared_floats(rows, extent.vocab));
  const std::int64_t workspace =
      larger(Tiling::kMaxRows * Tiling::kMaxColumns, attention_workspace_floats(extent.context, hd));
  return static_cast<std::size_t>(larger(shared, threads_ * workspace)) * sizeof(float);
}

void CpuOps::set_scratch(void* scratch, std::size_t bytes) {
  (void)bytes;
  scratch_ = static_cast<float*>(scratch);
}

void CpuOps::k_cast_weights(act_t* out, const float* in, std::int64_t n) {
  k_cast_to_float(floats(out), reinterpret_cast<const act_t*>(in), n);
}

void CpuOps::k_cast_to_float(float* out, const act_t* in, std::int64_t n) {
  parallel_pieces(threads_, n, kPiece, [&](std::int64_t first, std::int64_t count) {
    std::memcpy(out + first, floats(in) + first, static_cast<std::size_t>(count) * sizeof(float));
  });
}

Ops* make_ops(const CpuSettings& settings) { return new CpuOps(settings); }

}  // namespace andrea::ANDREA_CPU_PATH
