// The operations of ops.h with FP8 products in the linear layers (W_Q|W_K|W_V, W_O, W_1, W_2); everything
// else is the bfloat16 back end it inherits.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/fp8.h"

namespace andrea::cuda {

/// Each product's factors are cast to E4M3, scaled by a power of two from their own largest magnitude. That
/// magnitude is left by the kernel that writes the tensor (LayerNorm, attention, GELU, AdamW and their
/// backward twins), so that the cast is the only additional pass. Why E4M3 backward too: docs/KERNELS.md.
/// With Extent::keep_factors the forward pass casts inputs and weights in both layouts at once and keeps the
/// one that backward needs; GELU then goes into its cast, and is never written in bfloat16.
/// Products of a number of rows that is no multiple of 16, and those of decoding, where a text must not
/// depend on its neighbours, stay in bfloat16.
class Fp8Ops final : public CudaOps<__nv_bfloat16> {
 public:
  explicit Fp8Ops(CudaDevice& device) : CudaOps(device, Precision::kFp8) {}

  std::size_t scratch_bytes(const Extent& extent) const override;
  std::size_t kept_bytes(const Extent& extent) const override;
  void set_kept(void* kept, const Extent& extent) override;

  void k_attn_qkv_fwd(act_t* qkv, const act_t* x, const act_t* w_qkv, std::int64_t rows,
                      std::int64_t d) override;
  void k_attn_qkv_bwd(act_t* dx, float* dw_qkv, const act_t* dqkv, const act_t* x, const act_t* w_qkv,
                      std::int64_t rows, std::int64_t d, bool accumulate) override;
  void k_attn_out_fwd(act_t* out, const act_t* att, const act_t* w_o, const act_t* residual,
                      std::int64_t rows, std::int64_t d) override;
  void k_attn_out_bwd(act_t* datt, float* dw_o, const act_t* dout, const act_t* att, const act_t* w_o,
                      std::int64_t rows, std::int64_t d, bool accumulate) override;
  void k_mlp_fwd(act_t* out, act_t* h, act_t* g, const act_t* x, const act_t* w_1, const act_t* w_2,
                 const act_t* residual, std::int64_t rows, std::int64_t d) override;
  void k_mlp_bwd(act_t* dx, float* dw_1, float* dw_2, act_t* dh, const act_t* dout, const act_t* x,
                 const act_t* h, act_t* g, const act_t* w_1, const act_t* w_2, std::int64_t rows,
                 std::int64_t d, bool recompute_g, bool accumulate) override;

  void k_cast_weights(act_t* out, const float* in, std::int64_t n) override;
  void k_adamw(float* params, float* m, float* v, act_t* compute_weights, const float* grads,
               const StepControl* control, const StepStatus* status, std::int64_t n, std::int64_t n_decay,
               std::int64_t n_compute) override;
  void k_grad_norm_final(StepStatus* status, const double* partials, std::int64_t n_partials,
                         const float* row_losses, std::int64_t n_rows, const StepControl* control) override;

  // Writers that leave no largest magnitude: whatever was known of their output is forgotten.
  void k_embed_fwd(act_t* x, const std::int32_t* ids, const act_t* tok_embed, const act_t* pos_embed,
                   std::int64_t B, std::int64_t T, std::int64_t d) override;
  void k_embed_decode_fwd(act_t* x, const std::int32_t* ids, const std::int32_t* position,
                          const act_t* tok_embed, const act_t* pos_embed, std::int64_t B,
                          std::int64_t d) override;
  void k_attn_decode_fwd(act_t* out, act_t* kv_cache, const act_t* qkv, const std::int32_t* position,
                         std::int64_t B, std::int64_t T_max, std::int64_t H, std::int64_t hd) override;
  void k_residual_add(act_t* out, const act_t* a, const act_t* b, std::int64_t n) override;
  void k_residual_add_bwd(act_t* da, act_t* db, const act_t* dout, std::int64_t n) override;
  void k_head_fwd(act_t* logits, const act_t* x, const act_t* w, std::int64_t rows, std::int64_t d,
                  std::int64_t Vp) override;
  void k_head_bwd(act_t* dx, float* dw, const act_t* dlogits, const act_t* x, const act_t* w,
                  std::int64_t rows, std::int64_t d, std::int64_t Vp, bool accumulate) override;
  void k_loss_bwd(act_t* dlogits, const act_t* logits, const std::int32_t* targets, float scale,
                  const StepStatus* status, std::int64_t rows, std::int64_t V, std::int64_t Vp) override;
  void k_loss_fwd_bwd(float* losses, act_t* logits, const std::int32_t* targets, float scale,
                      const StepStatus* status, std::int64_t rows, std::int64_t V, std::int64_t Vp) override;

 protected:
  Absmax* absmax_of(const act_t* out) override;

 private:
  /// A factor of a product: E4M3 numbers, and what they are to be multiplied by.
  struct Factor {
    fp8_t* values = nullptr;
    float* inverse_scale = nullptr;
  };
  /// Weights that FP8 products have used, and what their forward pass has kept for the backward one.
  struct Weights {
    std::int64_t n;
    Absmax* absmax;
    bool current = false;  ///< *absmax is that of the elements which lie there now, and stays so
    Factor transposed{};   ///< W^T [k, n]
    Factor input{};        ///< x^T [k, input_rows]
    std::int64_t input_rows = 0;
  };
  /// Memory that is handed out in turn to factors.
  class CastMemory {
   public:
    CastMemory() = default;
    CastMemory(void* begin, std::size_t bytes) : next_(static_cast<fp8_t*>(begin)), end_(next_ + bytes) {}
    Factor take(std::int64_t n);

   private:
    fp8_t* next_ = nullptr;
    fp8_t* end_ = nullptr;
  };

  bool fits_fp8(std::int64_t rows, std::int64_t d) const;
  void begin_pass();
  /// Makes sure that the next n calls of next_absmax() take slots of one pass.
  void reserve_absmaxes(std::int64_t n);
  /// A largest magnitude that nobody uses, zero.
  Absmax* next_absmax();
  void forget(const act_t* tensor) { written_.erase(tensor); }
  /// The absmax of a tensor of n elements: its writer's, or else found now.
  const Absmax* absmax_in(const act_t* tensor, std::int64_t n);
  Weights& weights(const act_t* w, std::int64_t n);

  /// Memory behind the workspace of the products, for `factors` elements.
  CastMemory scratch_for(std::int64_t factors);
  /// x [rows, cols], or gelu of it, cast to plain, transposed or both, those that have memory; both then
  /// share a scale, that of `transposed`.
  void cast(Factor& plain, const Factor& transposed, const act_t* x, const Absmax* absmax, std::int64_t rows,
            std::int64_t cols, bool gelu = false);
  Factor cast_transposed(CastMemory& memory, const act_t* x, const Absmax* absmax, std::int64_t rows,
                         std::int64_t cols);
  /// dy [rows, n] as it is and transposed, in one pass.
  std::pair<Factor, Factor> cast_gradient(CastMemory& memory, const act_t* dy, std::int64_t rows,
                                          std::int64_t n);
  /// What backward needs of x [rows, k] and of w [n, k], transposed: kept, or cast now.
  Factor input_for_bwd(CastMemory& memory, const act_t* x, const act_t* w, std::int64_t rows, std::int64_t k);
  Factor weights_for_bwd(CastMemory& memory, const act_t* w, std::int64_t n, std::int64_t k);
  const Weights& kept_with(const act_t* w) const;
  void multiply(GemmKind kind, void* out, const Factor& a, const Factor& b, const void* addend,
                std::int64_t m, std::int64_t n, std::int64_t k);

  /// out [rows, n] = x [rows, k] W^T + residual, x = gelu(h) if gelu is true and `x` is h.
  void linear_fwd(act_t* out, const act_t* x, const act_t* w, const act_t* residual, std::int64_t rows,
                  std::int64_t n, std::int64_t k, bool gelu = false);
  /// dW [n, k] (+)= dy^T x and dx [rows, k] = dy W, from dy [rows, n].
  void linear_bwd(act_t* dx, float* dw, const act_t* dy, const act_t* x, const act_t* w, std::int64_t rows,
                  std::int64_t n, std::int64_t k, bool accumulate);
  void find_weights_absmax();

  // Largest magnitudes of what operations write are handed out in turn, and start over with every forward
  // pass; written_ says whose the ones of this pass are.
  Absmax* absmaxes_ = nullptr;
  std::int64_t n_absmaxes_ = 0, used_absmaxes_ = 0;
  std::map<const act_t*, const Absmax*> written_;

  std::map<const act_t*, Weights> weights_;
  Absmax* weights_absmaxes_ = nullptr;
  std::int64_t n_weights_ = 0;  // that weights_absmaxes_ has room for
  std::uint32_t* saturated_ = nullptr;
  std::uint32_t* pieces_ = nullptr;
  std::int64_t n_pieces_ = 0;

  bool keeps_factors_ = false;
  CastMemory factors_;
  std::int64_t most_rows_ = 0;  // of a kept input

  const act_t* arena_ = nullptr;  // AdamW's compute weights
  std::int64_t n_arena_ = 0;
  // weights_ in the arena when AdamW was first seen; then fixed, so that all recorded steps know them. The
  // magnitudes of those that come later are found at every use.
  std::vector<WeightPlace> places_;
  bool places_fixed_ = false;
  bool decoding_ = false;
};

}  // namespace andrea::cuda
