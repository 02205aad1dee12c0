// The operations of ops.h on CUDA, for one storage type. Each method is defined in the file of its pair.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "kernels/cuda/absmax.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/ops.h"

namespace andrea::cuda {

/// T is float, __half or __nv_bfloat16.
template <typename T>
class CudaOps : public Ops {
 public:
  CudaOps(CudaDevice& device, Precision precision)
      : gemm_(device.gemm()),
        stream_(device.stream()),
        precision_(precision),
        hopper_(device.hopper_kernels()) {}

  Precision precision() const override { return precision_; }
  std::size_t act_bytes() const override { return sizeof(T); }
  std::size_t scratch_bytes(const Extent& extent) const override;
  void set_scratch(void* scratch, std::size_t bytes) override;
  void k_cast_weights(act_t* out, const float* in, std::int64_t n) override;
  void k_cast_to_float(float* out, const act_t* in, std::int64_t n) override;

  void k_embed_fwd(act_t* x, const std::int32_t* ids, const act_t* tok_embed, const act_t* pos_embed,
                   std::int64_t B, std::int64_t T_, std::int64_t d) override;
  void k_embed_bwd(float* d_tok_embed, float* d_pos_embed, const act_t* dx, const std::int32_t* ids,
                   std::int64_t B, std::int64_t T_, std::int64_t d, std::int64_t V, bool accumulate_tok,
                   bool accumulate_pos) override;
  void k_embed_decode_fwd(act_t* x, const std::int32_t* ids, const std::int32_t* position,
                          const act_t* tok_embed, const act_t* pos_embed, std::int64_t B,
                          std::int64_t d) override;

  void k_layernorm_fwd(act_t* y, float* mean, float* rstd, const act_t* x, const float* gamma,
                       const float* beta, std::int64_t rows, std::int64_t d) override;
  void k_layernorm_bwd(act_t* dx, float* dgamma, float* dbeta, const act_t* dy, const act_t* x,
                       const float* gamma, const float* mean, const float* rstd, std::int64_t rows,
                       std::int64_t d, bool add_to_dx, bool accumulate) override;

  void k_attn_qkv_fwd(act_t* qkv, const act_t* x, const act_t* w_qkv, std::int64_t rows,
                      std::int64_t d) override;
  void k_attn_qkv_bwd(act_t* dx, float* dw_qkv, const act_t* dqkv, const act_t* x, const act_t* w_qkv,
                      std::int64_t rows, std::int64_t d, bool accumulate) override;
  void k_attn_fwd(act_t* out, float* lse, const act_t* qkv, std::int64_t B, std::int64_t T_, std::int64_t H,
                  std::int64_t hd) override;
  void k_attn_bwd(act_t* dqkv, const act_t* dout, const act_t* out, const act_t* qkv, const float* lse,
                  std::int64_t B, std::int64_t T_, std::int64_t H, std::int64_t hd) override;
  void k_attn_decode_fwd(act_t* out, act_t* kv_cache, const act_t* qkv, const std::int32_t* position,
                         std::int64_t B, std::int64_t T_max, std::int64_t H, std::int64_t hd) override;
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
  void k_row_loss(float* row_losses, const float* losses, std::int64_t B, std::int64_t T_) override;

  void k_zero_grads(float* grads, std::int64_t n) override;
  std::int64_t grad_norm_partials(std::int64_t n) const override;
  void k_grad_norm_partial(double* partials, const float* grads, std::int64_t n) override;
  void k_grad_norm_final(StepStatus* status, const double* partials, std::int64_t n_partials,
                         const float* row_losses, std::int64_t n_rows, const StepControl* control) override;
  void k_grad_scale(float* grads, const StepStatus* status, std::int64_t n) override;
  void k_adamw(float* params, float* m, float* v, act_t* compute_weights, const float* grads,
               const StepControl* control, const StepStatus* status, std::int64_t n, std::int64_t n_decay,
               std::int64_t n_compute) override;

 protected:
  /// Where a kernel that is about to write `out` shall leave its largest magnitude; null: nobody asks.
  virtual Absmax* absmax_of(const act_t* /*out*/) { return nullptr; }
  /// Where AdamW and the cast of weights leave that of every kAbsmaxPiece of them; null: nobody asks.
  std::uint32_t* absmax_pieces_ = nullptr;

  static T* typed(act_t* p) { return reinterpret_cast<T*>(p); }
  static const T* typed(const act_t* p) { return reinterpret_cast<const T*>(p); }
  /// Scratch memory as an array; throws DeviceError if it is smaller than `bytes` (a bug in the plan).
  void* scratch(std::size_t bytes) const;
  void product(GemmKind kind, void* out, const void* a, const void* b, const void* addend, std::int64_t m,
               std::int64_t n, std::int64_t k);

  /// dW = dy^T x [m, n], sums over k rows.
  void weight_gradient(float* dw, const act_t* dy, const act_t* x, std::int64_t m, std::int64_t n,
                       std::int64_t k, bool accumulate) {
    product(GemmKind::kWeight, dw, dy, x, accumulate ? dw : nullptr, m, n, k);
  }

  GemmTable& gemm_;
  cudaStream_t stream_;

 private:
  Precision precision_;
  bool hopper_;
  void* scratch_ = nullptr;
  std::size_t scratch_size_ = 0;
};

/// Scratch needs of the pairs that have one, in bytes.
std::size_t embed_bwd_scratch(std::int64_t rows, std::int64_t d, std::int64_t V);
std::size_t layernorm_bwd_scratch(std::int64_t d);
std::size_t attn_bwd_scratch(std::int64_t B, std::int64_t T, std::int64_t H);

}  // namespace andrea::cuda
