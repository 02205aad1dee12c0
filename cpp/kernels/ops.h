// The operations of a GPT-2-like model, forward beside backward: one declaration for all back ends.
//
// Conventions
//   rows = B*T. All arrays are dense and row-major; shapes stand in comments as [B, T, 3, H, hd].
//   act_t is the storage type of activations and of the weights that enter matrix products: float, half or
//   bfloat16, chosen when the back end is made. Statistics, parameters, gradients of parameters and moments
//   are float32 always. Sums are accumulated in float32 or wider.
//   A backward twin gives the gradient of its input and of its weights. Gradients of weights are accumulated:
//   `+=` with accumulate = true, `=` with accumulate = false (which means the same as `+=` on zeros).
//   Inputs and outputs do not overlap unless a comment allows it. Every element of an output is written.
//   Offsets are 64-bit. Every reduction has a fixed order: the same call gives the same bits.
//   d = d_model, H = heads, hd = d / H, V = vocabulary, Vp = V rounded up to a multiple of kVocabMultiple;
//   columns V..Vp-1 of the logits are padding: outside the loss, gradient exactly zero.
//   `scratch` is memory of scratch_bytes() that an operation may use freely while it runs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace andrea {

/// Storage and arithmetic of activations and matrix products. See docs/KERNELS.md.
enum class Precision { kFp32, kFp16, kBf16, kFp8 };

/// Opaque element of activation storage; Ops::act_bytes() is its size.
struct act_t;

constexpr int kVocabMultiple = 64;

/// Extent of one micro-batch and of the model: what sizes the scratch memory.
struct Extent {
  std::int64_t batch = 0;    ///< B, sequences
  std::int64_t context = 0;  ///< T, tokens a sequence
  std::int64_t d_model = 0;
  std::int64_t n_head = 0;
  std::int64_t n_layer = 0;
  std::int64_t vocab = 0;      ///< V
  std::int64_t vocab_pad = 0;  ///< Vp
  std::int64_t n_params = 0;   ///< elements of the parameter arena, padding included
  /// Linear layers may keep what their backward pass needs of x and W in a form of their own, in the kept
  /// memory. Every backward pass then follows its forward pass, with the same weights, and need not find what
  /// lay in x; k_mlp_fwd need not write g.
  bool keep_factors = false;
};

/// What one optimizer step needs from the host. Lives in device memory, uploaded before each step.
struct StepControl {
  float learning_rate;
  float beta1, beta2, eps, weight_decay;
  float bias_correction1;  ///< 1 - beta1^t, t from 1
  float bias_correction2;  ///< 1 - beta2^t
  float clip_norm;
  std::int32_t
      loss_scale_growth_interval;  ///< good steps until the scale doubles; 0: the scale is fixed at 1
};

/// What one optimizer step tells the host. Lives in device memory; loss_scale and good_steps persist.
struct StepStatus {
  float grad_norm;            ///< global L2 norm, unscaled, before clipping; may be inf or NaN
  float grad_multiplier;      ///< what AdamW multiplies gradients with: clip coefficient / loss_scale
  float loss_scale;           ///< scale of the next step
  float step_loss_scale;      ///< scale of this step: stored gradients are this much too large
  std::int32_t good_steps;    ///< finite steps since loss_scale last changed
  std::int32_t apply;         ///< 1: losses and norm are finite, the update is made; 0: it is skipped
  std::int32_t scale_halved;  ///< 1: losses finite, norm not, loss_scale > 1: no failure yet
  /// Values of this step that FP8 could not hold; 0 while every scale is that of its tensor.
  std::int32_t fp8_saturated;
};

class Ops {
 public:
  virtual ~Ops() = default;
  Ops() = default;
  Ops(const Ops&) = delete;
  Ops& operator=(const Ops&) = delete;

  virtual Precision precision() const = 0;
  virtual std::size_t act_bytes() const = 0;
  /// Bytes of the scratch memory all calls for this extent (and any smaller batch or context) need.
  virtual std::size_t scratch_bytes(const Extent& extent) const = 0;
  /// Where that memory is. Called before any operation.
  virtual void set_scratch(void* scratch, std::size_t bytes) = 0;
  /// Bytes the back end keeps for itself from operation to operation (FP8: largest magnitudes of tensors, and
  /// with extent.keep_factors the factors of products; that these bytes grow with it says that it does so).
  virtual std::size_t kept_bytes(const Extent& /*extent*/) const { return 0; }
  /// Where that memory is, kept_bytes(extent) of it. Called before any operation, unless that is 0;
  /// again means that all is forgotten.
  virtual void set_kept(void* /*kept*/, const Extent& /*extent*/) {}
  /// float -> act_t for n values; false when act_t is float and parameters are used in place.
  virtual bool needs_compute_weights() const { return act_bytes() != sizeof(float); }
  virtual void k_cast_weights(act_t* out, const float* in, std::int64_t n) = 0;
  /// act_t -> float, for logits and tests.
  virtual void k_cast_to_float(float* out, const act_t* in, std::int64_t n) = 0;

  // ---- embedding: x[b,t,:] = tok_embed[ids[b,t],:] + pos_embed[t,:]
  virtual void k_embed_fwd(act_t* x, const std::int32_t* ids, const act_t* tok_embed, const act_t* pos_embed,
                           std::int64_t B, std::int64_t T, std::int64_t d) = 0;
  /// d_tok_embed [V, d] and d_pos_embed [T, d]: rows of the same id are added in the order of their position.
  virtual void k_embed_bwd(float* d_tok_embed, float* d_pos_embed, const act_t* dx, const std::int32_t* ids,
                           std::int64_t B, std::int64_t T, std::int64_t d, std::int64_t V,
                           bool accumulate_tok, bool accumulate_pos) = 0;

  // ---- LayerNorm over d, eps 1e-5: y = (x - mean) * rstd * gamma + beta; saves mean, rstd [rows]
  virtual void k_layernorm_fwd(act_t* y, float* mean, float* rstd, const act_t* x, const float* gamma,
                               const float* beta, std::int64_t rows, std::int64_t d) = 0;
  /// add_to_dx: dx already holds the gradient of the residual branch, and this one is added to it.
  virtual void k_layernorm_bwd(act_t* dx, float* dgamma, float* dbeta, const act_t* dy, const act_t* x,
                               const float* gamma, const float* mean, const float* rstd, std::int64_t rows,
                               std::int64_t d, bool add_to_dx, bool accumulate) = 0;

  // ---- Q, K, V projections in one product: qkv [rows, 3, H, hd] = x [rows, d] W^T, W = W_Q|W_K|W_V [3d, d]
  virtual void k_attn_qkv_fwd(act_t* qkv, const act_t* x, const act_t* w_qkv, std::int64_t rows,
                              std::int64_t d) = 0;
  virtual void k_attn_qkv_bwd(act_t* dx, float* dw_qkv, const act_t* dqkv, const act_t* x, const act_t* w_qkv,
                              std::int64_t rows, std::int64_t d, bool accumulate) = 0;

  // ---- causal attention, scores scaled by 1/sqrt(hd): out [B, T, H, hd]; saves lse [B, H, T], the natural
  //      log of the sum of exp(score) over the visible keys. No [T, T] matrix is kept.
  virtual void k_attn_fwd(act_t* out, float* lse, const act_t* qkv, std::int64_t B, std::int64_t T,
                          std::int64_t H, std::int64_t hd) = 0;
  virtual void k_attn_bwd(act_t* dqkv, const act_t* dout, const act_t* out, const act_t* qkv,
                          const float* lse, std::int64_t B, std::int64_t T, std::int64_t H,
                          std::int64_t hd) = 0;
  /// One new token for each of B sequences: qkv [B, 3, H, hd] is that token's; its K and V are written at
  /// `*position` of kv_cache [2, B, T_max, H, hd], then out [B, H, hd] attends to positions 0..*position.
  /// `position` is in device memory, so that a recorded step can be replayed.
  virtual void k_attn_decode_fwd(act_t* out, act_t* kv_cache, const act_t* qkv, const std::int32_t* position,
                                 std::int64_t B, std::int64_t T_max, std::int64_t H, std::int64_t hd) = 0;
  /// The embedding of one token a sequence at `*position`: x [B, d].
  virtual void k_embed_decode_fwd(act_t* x, const std::int32_t* ids, const std::int32_t* position,
                                  const act_t* tok_embed, const act_t* pos_embed, std::int64_t B,
                                  std::int64_t d) = 0;

  // ---- W_O [d, d]: out [rows, d] = residual + att W_O^T; residual may be null (no addend)
  virtual void k_attn_out_fwd(act_t* out, const act_t* att, const act_t* w_o, const act_t* residual,
                              std::int64_t rows, std::int64_t d) = 0;
  virtual void k_attn_out_bwd(act_t* datt, float* dw_o, const act_t* dout, const act_t* att, const act_t* w_o,
                              std::int64_t rows, std::int64_t d, bool accumulate) = 0;

  // ---- MLP: h [rows, 4d] = x W_1^T, g = gelu(h) (tanh form), out [rows, d] = residual + g W_2^T
  virtual void k_mlp_fwd(act_t* out, act_t* h, act_t* g, const act_t* x, const act_t* w_1, const act_t* w_2,
                         const act_t* residual, std::int64_t rows, std::int64_t d) = 0;
  /// g holds gelu(h), or with recompute_g or kept factors is working memory. dh [rows, 4d] is working memory
  /// and may be h.
  virtual void k_mlp_bwd(act_t* dx, float* dw_1, float* dw_2, act_t* dh, const act_t* dout, const act_t* x,
                         const act_t* h, act_t* g, const act_t* w_1, const act_t* w_2, std::int64_t rows,
                         std::int64_t d, bool recompute_g, bool accumulate) = 0;

  // ---- residual: out = a + b (out may be a or b); backward: both branches receive d_out
  virtual void k_residual_add(act_t* out, const act_t* a, const act_t* b, std::int64_t n) = 0;
  virtual void k_residual_add_bwd(act_t* da, act_t* db, const act_t* dout, std::int64_t n) = 0;

  // ---- head: logits [rows, Vp] = x W^T, W [Vp, d] (rows V..Vp-1 are zero)
  virtual void k_head_fwd(act_t* logits, const act_t* x, const act_t* w, std::int64_t rows, std::int64_t d,
                          std::int64_t Vp) = 0;
  /// dx may be x.
  virtual void k_head_bwd(act_t* dx, float* dw, const act_t* dlogits, const act_t* x, const act_t* w,
                          std::int64_t rows, std::int64_t d, std::int64_t Vp, bool accumulate) = 0;

  // ---- cross entropy: losses [rows] = log(sum_{v<V} exp(logits)) - logits[target], in nats
  virtual void k_loss_fwd(float* losses, const act_t* logits, const std::int32_t* targets, std::int64_t rows,
                          std::int64_t V, std::int64_t Vp) = 0;
  /// dlogits = (softmax - onehot) * scale * status->loss_scale, zero in the padding; dlogits may be logits.
  virtual void k_loss_bwd(act_t* dlogits, const act_t* logits, const std::int32_t* targets, float scale,
                          const StepStatus* status, std::int64_t rows, std::int64_t V, std::int64_t Vp) = 0;
  /// Both in one pass, in place.
  virtual void k_loss_fwd_bwd(float* losses, act_t* logits, const std::int32_t* targets, float scale,
                              const StepStatus* status, std::int64_t rows, std::int64_t V, std::int64_t Vp) {
    k_loss_fwd(losses, logits, targets, rows, V, Vp);
    k_loss_bwd(logits, logits, targets, scale, status, rows, V, Vp);
  }
  /// row_losses [B] = mean over T of losses [B, T].
  virtual void k_row_loss(float* row_losses, const float* losses, std::int64_t B, std::int64_t T) = 0;

  // ---- optimizer. n counts the parameter arena, padding included (its gradients are zero).
  virtual void k_zero_grads(float* grads, std::int64_t n) = 0;
  /// Sums of squares of fixed pieces of the gradients; grad_norm_partials(n) of them.
  virtual std::int64_t grad_norm_partials(std::int64_t n) const = 0;
  virtual void k_grad_norm_partial(double* partials, const float* grads, std::int64_t n) = 0;
  /// Finishes the norm and decides: sets every field of *status from the partials, the losses of the step's
  /// rows, the control and the previous status. Fails closed: anything non-finite means apply = 0.
  virtual void k_grad_norm_final(StepStatus* status, const double* partials, std::int64_t n_partials,
                                 const float* row_losses, std::int64_t n_rows,
                                 const StepControl* control) = 0;
  /// grads *= status->grad_multiplier, in place (AdamW applies it on the fly instead).
  virtual void k_grad_scale(float* grads, const StepStatus* status, std::int64_t n) = 0;
  /// AdamW with decoupled decay on the first n_decay elements; nothing is written if status->apply is 0.
  /// compute_weights [n_compute] receives the new weights as act_t (null: not wanted).
  virtual void k_adamw(float* params, float* m, float* v, act_t* compute_weights, const float* grads,
                       const StepControl* control, const StepStatus* status, std::int64_t n,
                       std::int64_t n_decay, std::int64_t n_compute) = 0;
};

}  // namespace andrea
