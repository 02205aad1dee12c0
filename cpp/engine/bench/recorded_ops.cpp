#include "engine/bench/recorded_ops.h"

#include <algorithm>
#include <utility>

namespace andrea {
namespace {

double count(std::int64_t n) { return static_cast<double>(n); }
double product(std::int64_t m, std::int64_t n, std::int64_t k) { return 2 * count(m) * count(n) * count(k); }

}  // namespace

void RecordedOps::pass(const char* name, double flops, double bytes, std::function<void()> call) {
  call();
  if (recording) calls.push_back({name, flops, bytes, std::move(call)});
}

void RecordedOps::k_cast_weights(act_t* out, const float* in, std::int64_t n) {
  pass("cast_weights", 0, acts(n) + 4 * count(n), [=] { ops_->k_cast_weights(out, in, n); });
}

void RecordedOps::k_cast_to_float(float* out, const act_t* in, std::int64_t n) {
  pass("cast_to_float", 0, acts(n) + 4 * count(n), [=] { ops_->k_cast_to_float(out, in, n); });
}

void RecordedOps::k_embed_fwd(act_t* x, const std::int32_t* ids, const act_t* tok_embed,
                              const act_t* pos_embed, std::int64_t B, std::int64_t T, std::int64_t d) {
  pass("embed_fwd", 0, acts(3 * B * T * d),
       [=] { ops_->k_embed_fwd(x, ids, tok_embed, pos_embed, B, T, d); });
}

void RecordedOps::k_embed_bwd(float* d_tok_embed, float* d_pos_embed, const act_t* dx,
                              const std::int32_t* ids, std::int64_t B, std::int64_t T, std::int64_t d,
                              std::int64_t V, bool accumulate_tok, bool accumulate_pos) {
  pass("embed_bwd", 0, acts(B * T * d) + 4 * count(std::min(V, B * T) * d + T * d), [=] {
    ops_->k_embed_bwd(d_tok_embed, d_pos_embed, dx, ids, B, T, d, V, accumulate_tok, accumulate_pos);
  });
}

void RecordedOps::k_layernorm_fwd(act_t* y, float* mean, float* rstd, const act_t* x, const float* gamma,
                                  const float* beta, std::int64_t rows, std::int64_t d) {
  pass("layernorm_fwd", 0, acts(2 * rows * d),
       [=] { ops_->k_layernorm_fwd(y, mean, rstd, x, gamma, beta, rows, d); });
}

void RecordedOps::k_layernorm_bwd(act_t* dx, float* dgamma, float* dbeta, const act_t* dy, const act_t* x,
                                  const float* gamma, const float* mean, const float* rstd, std::int64_t rows,
                                  std::int64_t d, bool add_to_dx, bool accumulate) {
  pass("layernorm_bwd", 0, acts((add_to_dx ? 4 : 3) * rows * d), [=] {
    ops_->k_layernorm_bwd(dx, dgamma, dbeta, dy, x, gamma, mean, rstd, rows, d, add_to_dx, accumulate);
  });
}

void RecordedOps::k_attn_qkv_fwd(act_t* qkv, const act_t* x, const act_t* w_qkv, std::int64_t rows,
                                 std::int64_t d) {
  pass("attn_qkv_fwd", product(rows, 3 * d, d), acts(4 * rows * d + 3 * d * d),
       [=] { ops_->k_attn_qkv_fwd(qkv, x, w_qkv, rows, d); });
}

void RecordedOps::k_attn_qkv_bwd(act_t* dx, float* dw_qkv, const act_t* dqkv, const act_t* x,
                                 const act_t* w_qkv, std::int64_t rows, std::int64_t d, bool accumulate) {
  pass("attn_qkv_bwd", 2 * product(rows, 3 * d, d), acts(5 * rows * d + 3 * d * d) + 12 * count(d * d),
       [=] { ops_->k_attn_qkv_bwd(dx, dw_qkv, dqkv, x, w_qkv, rows, d, accumulate); });
}

void RecordedOps::k_attn_fwd(act_t* out, float* lse, const act_t* qkv, std::int64_t B, std::int64_t T,
                             std::int64_t H, std::int64_t hd) {
  pass("attn_fwd", 2 * count(B * H * T * T * hd), acts(4 * B * T * H * hd),
       [=] { ops_->k_attn_fwd(out, lse, qkv, B, T, H, hd); });
}

void RecordedOps::k_attn_bwd(act_t* dqkv, const act_t* dout, const act_t* out, const act_t* qkv,
                             const float* lse, std::int64_t B, std::int64_t T, std::int64_t H,
                             std::int64_t hd) {
  pass("attn_bwd", 5 * count(B * H * T * T * hd), acts(8 * B * T * H * hd),
       [=] { ops_->k_attn_bwd(dqkv, dout, out, qkv, lse, B, T, H, hd); });
}

void RecordedOps::k_attn_decode_fwd(act_t* out, act_t* kv_cache, const act_t* qkv,
                                    const std::int32_t* position, std::int64_t B, std::int64_t T_max,
                                    std::int64_t H, std::int64_t hd) {
  pass("attn_decode_fwd", 4 * count(B * H * T_max * hd), acts(2 * B * H * T_max * hd),
       [=] { ops_->k_attn_decode_fwd(out, kv_cache, qkv, position, B, T_max, H, hd); });
}

void RecordedOps::k_embed_decode_fwd(act_t* x, const std::int32_t* ids, const std::int32_t* position,
                                     const act_t* tok_embed, const act_t* pos_embed, std::int64_t B,
                                     std::int64_t d) {
  pass("embed_decode_fwd", 0, acts(3 * B * d),
       [=] { ops_->k_embed_decode_fwd(x, ids, position, tok_embed, pos_embed, B, d); });
}

void RecordedOps::k_attn_out_fwd(act_t* out, const act_t* att, const act_t* w_o, const act_t* residual,
                                 std::int64_t rows, std::int64_t d) {
  pass("attn_out_fwd", product(rows, d, d), acts(3 * rows * d + d * d),
       [=] { ops_->k_attn_out_fwd(out, att, w_o, residual, rows, d); });
}

void RecordedOps::k_attn_out_bwd(act_t* datt, float* dw_o, const act_t* dout, const act_t* att,
                                 const act_t* w_o, std::int64_t rows, std::int64_t d, bool accumulate) {
  pass("attn_out_bwd", 2 * product(rows, d, d), acts(3 * rows * d + d * d) + 4 * count(d * d),
       [=] { ops_->k_attn_out_bwd(datt, dw_o, dout, att, w_o, rows, d, accumulate); });
}

void RecordedOps::k_mlp_fwd(act_t* out, act_t* h, act_t* g, const act_t* x, const act_t* w_1,
                            const act_t* w_2, const act_t* residual, std::int64_t rows, std::int64_t d) {
  pass("mlp_fwd", 2 * product(rows, 4 * d, d), acts(15 * rows * d + 8 * d * d),
       [=] { ops_->k_mlp_fwd(out, h, g, x, w_1, w_2, residual, rows, d); });
}

void RecordedOps::k_mlp_bwd(act_t* dx, float* dw_1, float* dw_2, act_t* dh, const act_t* dout, const act_t* x,
                            const act_t* h, act_t* g, const act_t* w_1, const act_t* w_2, std::int64_t rows,
                            std::int64_t d, bool recompute_g, bool accumulate) {
  pass("mlp_bwd", 4 * product(rows, 4 * d, d), acts(32 * rows * d + 16 * d * d) + 32 * count(d * d), [=] {
    ops_->k_mlp_bwd(dx, dw_1, dw_2, dh, dout, x, h, g, w_1, w_2, rows, d, recompute_g, accumulate);
  });
}

void RecordedOps::k_residual_add(act_t* out, const act_t* a, const act_t* b, std::int64_t n) {
  pass("residual_add", 0, acts(3 * n), [=] { ops_->k_residual_add(out, a, b, n); });
}

void RecordedOps::k_residual_add_bwd(act_t* da, act_t* db, const act_t* dout, std::int64_t n) {
  pass("residual_add_bwd", 0, acts(3 * n), [=] { ops_->k_residual_add_bwd(da, db, dout, n); });
}

void RecordedOps::k_head_fwd(act_t* logits, const act_t* x, const act_t* w, std::int64_t rows, std::int64_t d,
                             std::int64_t Vp) {
  pass("head_fwd", product(rows, Vp, d), acts(rows * Vp + rows * d + Vp * d),
       [=] { ops_->k_head_fwd(logits, x, w, rows, d, Vp); });
}

void RecordedOps::k_head_bwd(act_t* dx, float* dw, const act_t* dlogits, const act_t* x, const act_t* w,
                             std::int64_t rows, std::int64_t d, std::int64_t Vp, bool accumulate) {
  pass("head_bwd", 2 * product(rows, Vp, d), acts(2 * rows * Vp + 2 * rows * d + Vp * d) + 4 * count(Vp * d),
       [=] { ops_->k_head_bwd(dx, dw, dlogits, x, w, rows, d, Vp, accumulate); });
}

void RecordedOps::k_loss_fwd(float* losses, const act_t* logits, const std::int32_t* targets,
                             std::int64_t rows, std::int64_t V, std::int64_t Vp) {
  pass("loss_fwd", 0, acts(rows * Vp), [=] { ops_->k_loss_fwd(losses, logits, targets, rows, V, Vp); });
}

void RecordedOps::k_loss_bwd(act_t* dlogits, const act_t* logits, const std::int32_t* targets, float scale,
                             const StepStatus* status, std::int64_t rows, std::int64_t V, std::int64_t Vp) {
  pass("loss_bwd", 0, acts(2 * rows * Vp),
       [=] { ops_->k_loss_bwd(dlogits, logits, targets, scale, status, rows, V, Vp); });
}

void RecordedOps::k_loss_fwd_bwd(float* losses, act_t* logits, const std::int32_t* targets, float scale,
                                 const StepStatus* status, std::int64_t rows, std::int64_t V,
                                 std::int64_t Vp) {
  pass("loss_fwd_bwd", 0, acts(2 * rows * Vp),
       [=] { ops_->k_loss_fwd_bwd(losses, logits, targets, scale, status, rows, V, Vp); });
}

void RecordedOps::k_row_loss(float* row_losses, const float* losses, std::int64_t B, std::int64_t T) {
  pass("row_loss", 0, 4 * count(B * T), [=] { ops_->k_row_loss(row_losses, losses, B, T); });
}

void RecordedOps::k_zero_grads(float* grads, std::int64_t n) {
  pass("zero_grads", 0, 4 * count(n), [=] { ops_->k_zero_grads(grads, n); });
}

void RecordedOps::k_grad_norm_partial(double* partials, const float* grads, std::int64_t n) {
  pass("grad_norm_partial", 0, 4 * count(n), [=] { ops_->k_grad_norm_partial(partials, grads, n); });
}

void RecordedOps::k_grad_norm_final(StepStatus* status, const double* partials, std::int64_t n_partials,
                                    const float* row_losses, std::int64_t n_rows,
                                    const StepControl* control) {
  pass("grad_norm_final", 0, 8 * count(n_partials),
       [=] { ops_->k_grad_norm_final(status, partials, n_partials, row_losses, n_rows, control); });
}

void RecordedOps::k_grad_scale(float* grads, const StepStatus* status, std::int64_t n) {
  pass("grad_scale", 0, 8 * count(n), [=] { ops_->k_grad_scale(grads, status, n); });
}

void RecordedOps::k_adamw(float* params, float* m, float* v, act_t* compute_weights, const float* grads,
                          const StepControl* control, const StepStatus* status, std::int64_t n,
                          std::int64_t n_decay, std::int64_t n_compute) {
  pass("adamw", 0, 28 * count(n) + (compute_weights != nullptr ? acts(n_compute) : 0),
       [=] { ops_->k_adamw(params, m, v, compute_weights, grads, control, status, n, n_decay, n_compute); });
}

}  // namespace andrea
