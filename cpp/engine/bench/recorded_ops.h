// A back end's operations with a memory: each call is passed on and, while recording, kept with what it
// costs, so that a benchmark can do the very calls of a training step again, kind by kind.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace andrea {

/// One call of one operation. FLOPs and bytes are the least that its definition allows: every input and
/// output of the pair moved once between device memory and the chip, no FLOP done twice; causal attention
/// counts half. h and g of the MLP are moved between its parts.
struct RecordedCall {
  std::string name;  ///< "attn_bwd"
  double flops = 0;
  double bytes = 0;
  std::function<void()> again;  ///< the same call on the same memory
};

class RecordedOps final : public Ops {
 public:
  explicit RecordedOps(std::unique_ptr<Ops> ops) : ops_(std::move(ops)) {}

  /// What was called since recording began. While it is on, each operation is also done.
  std::vector<RecordedCall> calls;
  bool recording = false;

  Precision precision() const override { return ops_->precision(); }
  std::size_t act_bytes() const override { return ops_->act_bytes(); }
  std::size_t scratch_bytes(const Extent& extent) const override { return ops_->scratch_bytes(extent); }
  void set_scratch(void* scratch, std::size_t bytes) override { ops_->set_scratch(scratch, bytes); }
  std::size_t kept_bytes(const Extent& extent) const override { return ops_->kept_bytes(extent); }
  void set_kept(void* kept, const Extent& extent) override { ops_->set_kept(kept, extent); }
  bool needs_compute_weights() const override { return ops_->needs_compute_weights(); }
  std::int64_t grad_norm_partials(std::int64_t n) const override { return ops_->grad_norm_partials(n); }

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
  void k_grad_norm_partial(double* partials, const float* grads, std::int64_t n) override;
  void k_grad_norm_final(StepStatus* status, const double* partials, std::int64_t n_partials,
                         const float* row_losses, std::int64_t n_rows, const StepControl* control) override;
  void k_grad_scale(float* grads, const StepStatus* status, std::int64_t n) override;
  void k_adamw(float* params, float* m, float* v, act_t* compute_weights, const float* grads,
               const StepControl* control, const StepStatus* status, std::int64_t n, std::int64_t n_decay,
               std::int64_t n_compute) override;

 private:
  void pass(const char* name, double flops, double bytes, std::function<void()> call);
  double acts(std::int64_t n) const {
    return static_cast<double>(n) * static_cast<double>(ops_->act_bytes());
  }

  std::unique_ptr<Ops> ops_;
};

}  // namespace andrea
