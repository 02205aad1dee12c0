// The operations on the CPU in float32. Each pair has a file; this is their common class.
//
// Everything here lives in a namespace named after the instruction path it is compiled for. Its files use
// nothing inline from outside that namespace but the plainest scalars, so that no code of a wide path can be
// chosen by the linker for a narrow one.
#pragma once

#include "kernels/cpu/instruction_path.h"
#include "kernels/ops.h"

namespace andrea::ANDREA_CPU_PATH {

inline float* floats(act_t* p) { return reinterpret_cast<float*>(p); }
inline const float* floats(const act_t* p) { return reinterpret_cast<const float*>(p); }
inline std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
inline std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }
inline std::int64_t pieces_of(std::int64_t n, std::int64_t piece) { return (n + piece - 1) / piece; }
/// Rounds up to a cache line of floats.
inline std::int64_t line_of_floats(std::int64_t n) { return (n + 15) / 16 * 16; }

/// A rectangle of a matrix.
struct Tile {
  std::int64_t row, rows, column, columns;
};

/// Cuts [m, n] into tiles by a rule that knows the shape only.
class Tiling {
 public:
  Tiling(std::int64_t m, std::int64_t n);
  std::int64_t count() const { return down_ * across_; }
  Tile tile(std::int64_t i) const;

  static constexpr std::int64_t kMaxRows = 512, kMaxColumns = 512;

 private:
  std::int64_t m_, n_, height_, width_, down_, across_;
};

/// A factor of a product, as stored: element (i, j) at data[i * ld + j].
struct Factor {
  const float* data;
  std::int64_t ld;
  bool transposed;
};

class CpuOps final : public Ops {
 public:
  explicit CpuOps(const CpuSettings& settings) : threads_(settings.threads), sgemm_(settings.sgemm) {}

  Precision precision() const override { return Precision::kFp32; }
  std::size_t act_bytes() const override { return sizeof(float); }
  std::size_t scratch_bytes(const Extent& extent) const override;
  void set_scratch(void* scratch, std::size_t bytes) override;
  void k_cast_weights(act_t* out, const float* in, std::int64_t n) override;
  void k_cast_to_float(float* out, const act_t* in, std::int64_t n) override;

  void k_embed_fwd(act_t* x, const std::int32_t* ids, const act_t* tok_embed, const act_t* pos_embed,
                   std::int64_t B, std::int64_t T, std::int64_t d) override;
  void k_embed_bwd(float* d_tok_embed, float* d_pos_embed, const act_t* dx, const std::int32_t* ids,
                   std::int64_t B, std::int64_t T, std::int64_t d, std::int64_t V, bool accumulate_tok,
                   bool accumulate_pos) override;
  void k_layernorm_fwd(act_t* y, float* mean, float* rstd, const act_t* x, const float* gamma,
                       const float* beta, std::int64_t rows, std::int64_t d) override;
  void k_layernorm_bwd(act_t* dx, float* dgamma, float* dbeta, const act_t* dy, const act_t* x,
                       const float* gamma, const float* mean, const float* rstd, std::int64_t rows,
                       std::int64_t d, bool add_to_dx, bool accumulate) override;
  void k_attn_qkv_fwd(act_t* qkv, const act_t* x, const act_t* w_qkv, std::int64_t rows,
                      std::int64_t d) override;
  void k_attn_qkv_bwd(act_t* dx, float* dw_qkv, const act_t* dqkv, const act_t* x, const act_t* w_qkv,
                      std::int64_t rows, std::int64_t d, bool accumulate) override;
  void k_attn_fwd(act_t* out, float* lse, const act_t* qkv, std::int64_t B, std::int64_t T, std::int64_t H,
                  std::int64_t hd) override;
  void k_attn_bwd(act_t* dqkv, const act_t* dout, const act_t* out, const act_t* qkv, const float* lse,
                  std::int64_t B, std::int64_t T, std::int64_t H, std::int64_t hd) override;
  void k_attn_decode_fwd(act_t* out, act_t* kv_cache, const act_t* qkv, const std::int32_t* position,
                         std::int64_t B, std::int64_t T_max, std::int64_t H, std::int64_t hd) override;
  void k_embed_decode_fwd(act_t* x, const std::int32_t* ids, const std::int32_t* position,
                          const act_t* tok_embed, const act_t* pos_embed, std::int64_t B,
                          std::int64_t d) override;
  void k_attn_out_fwd(act_t* out, const act_t* att, const act_t* w_o, const act_t* residual,
                      std::int64_t rows, std::int64_t d) override;
  void k_attn_out_bwd(act_t* datt, float* dw_o, const act_t* dout, const act_t* att, const act_t* w_o,
                      std::int64_t rows, std::int64_t d, bool accumulate) override;
  void k_mlp_fwd(act_t* out, act_t* h, act_t* g, const act_t* x, const act_t* w_1, const act_t* w_2,
                 const act_t* residual, std::int64_t rows, std::int64_t d) override;
  void k_mlp_bwd(act_t* dx, float* dw_1, float* dw_2, act_t* dh, const act_t* dout, const act_t* x,
                 const act_t* h, act_t* g, const act_t* w_1, const act_t* w_2, std::int64_t rows,
                 std::int64_t d, bool recompute_g, bool accumulate) override;
  void k_residual_add(act_t* out, const act_t* a, const act_t* b, std::int64_t n) override;
  void k_residual_add_bwd(act_t* da, act_t* db, const act_t* dout, std::int64_t n) override;
  void k_head_fwd(act_t* logits, const act_t* x, const act_t* w, std::int64_t rows, std::int64_t d,
                  std::int64_t Vp) override;
  void k_head_bwd(act_t* dx, float* dw, const act_t* dlogits, const act_t* x, const act_t* w,
                  std::int64_t rows, std::int64_t d, std::int64_t Vp, bool accumulate) override;
  void k_loss_fwd(float* losses, const act_t* logits, const std::int32_t* targets, std::int64_t rows,
                  std::int64_t V, std::int64_t Vp) override;
  void k_loss_bwd(act_t* dlogits, const act_t* logits, const std::int32_t* targets, float scale,
                  const StepStatus* status, std::int64_t rows, std::int64_t V, std::int64_t Vp) override;
  void k_loss_fwd_bwd(float* losses, act_t* logits, const std::int32_t* targets, float scale,
                      const StepStatus* status, std::int64_t rows, std::int64_t V, std::int64_t Vp) override;
  void k_row_loss(float* row_losses, const float* losses, std::int64_t B, std::int64_t T) override;
  void k_zero_grads(float* grads, std::int64_t n) override;
  std::int64_t grad_norm_partials(std::int64_t n) const override;
  void k_grad_norm_partial(double* partials, const float* grads, std::int64_t n) override;
  void k_grad_norm_final(StepStatus* status, const double* partials, std::int64_t n_partials,
                         const float* row_losses, std::int64_t n_rows, const StepControl* control) override;
  void k_grad_scale(float* grads, const StepStatus* status, std::int64_t n) override;
  void k_adamw(float* params, float* m, float* v, act_t* compute_weights, const float* grads,
               const StepControl* control, const StepStatus* status, std::int64_t n, std::int64_t n_decay,
               std::int64_t n_compute) override;

 private:
  /// One tile of c [m, n] (+)= a [m, k] b [k, n] by one BLAS call. c points at the tile.
  void multiply_tile(float* c, std::int64_t ldc, Factor a, Factor b, const Tile& tile, std::int64_t k,
                     bool add) const;
  /// out [m, n] = x [m, k] w^T, w [n, k], plus `residual` [m, n] if it is not null.
  void linear(float* out, const float* x, const float* w, const float* residual, std::int64_t m,
              std::int64_t n, std::int64_t k) const;
  /// The same for a few rows: each weight is read once, by dot products.
  void linear_few_rows(float* out, const float* x, const float* w, const float* residual, std::int64_t m,
                       std::int64_t n, std::int64_t k) const;
  /// dx [m, k] = dy [m, n] w, w [n, k]
  void linear_input_gradient(float* dx, const float* dy, const float* w, std::int64_t m, std::int64_t n,
                             std::int64_t k) const;
  /// dw [n, k] (+)= dy^T x, dy [m, n], x [m, k]
  void linear_weight_gradient(float* dw, const float* dy, const float* x, std::int64_t m, std::int64_t n,
                              std::int64_t k, bool accumulate) const;

  // Scratch: an operation uses it as one block, or cut into a workspace for each thread.
  float* shared() const { return scratch_; }
  float* workspace(int thread, std::int64_t floats_each) const { return scratch_ + thread * floats_each; }

  int threads_;
  SgemmFunction sgemm_;
  float* scratch_ = nullptr;
};

/// What operations ask of the scratch memory, in floats; a workspace is for one thread.
std::int64_t layernorm_shared_floats(std::int64_t rows, std::int64_t d);
std::int64_t embed_shared_floats(std::int64_t rows, std::int64_t V);
std::int64_t attention_workspace_floats(std::int64_t T, std::int64_t hd);

}  // namespace andrea::ANDREA_CPU_PATH
