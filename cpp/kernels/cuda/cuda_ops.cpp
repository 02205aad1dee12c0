// The scratch memory, and the operations that are one or two matrix products and nothing else:
// k_attn_qkv_*, k_attn_out_*, k_head_*. A product of [m, k] by [k, n] takes 2 m n k operations.
// The residual enters as the product's addend (beta = 1), so no pass over memory is spent on it.
#include "kernels/cuda/cuda_ops.h"

#include <algorithm>
#include <string>

#include "engine/errors.h"

namespace andrea::cuda {

template <typename T>
std::size_t CudaOps<T>::scratch_bytes(const Extent& extent) const {
  const std::int64_t rows = extent.batch * extent.context;
  return std::max({kGemmWorkspaceBytes, embed_bwd_scratch(rows, extent.d_model, extent.vocab),
                   layernorm_bwd_scratch(extent.d_model),
                   attn_bwd_scratch(extent.batch, extent.context, extent.n_head)});
}

template <typename T>
void CudaOps<T>::set_scratch(void* scratch, std::size_t bytes) {
  scratch_ = scratch;
  scratch_size_ = bytes;
}

template <typename T>
void* CudaOps<T>::scratch(std::size_t bytes) const {
  if (scratch_ == nullptr || bytes > scratch_size_)
    throw DeviceError("scratch memory of " + std::to_string(scratch_size_) + " bytes is set, " +
                      std::to_string(bytes) + " are needed: call set_scratch() with scratch_bytes(extent)");
  return scratch_;
}

template <typename T>
void CudaOps<T>::product(GemmKind kind, void* out, const void* a, const void* b, const void* addend,
                         std::int64_t m, std::int64_t n, std::int64_t k) {
  gemm_.multiply(kind, out, a, b, addend, m, n, k, scratch(kGemmWorkspaceBytes), stream_);
}

template <typename T>
void CudaOps<T>::k_attn_qkv_fwd(act_t* qkv, const act_t* x, const act_t* w_qkv, std::int64_t rows,
                                std::int64_t d) {
  product(GemmKind::kForward, qkv, x, w_qkv, nullptr, rows, 3 * d, d);
}

template <typename T>
void CudaOps<T>::k_attn_qkv_bwd(act_t* dx, float* dw_qkv, const act_t* dqkv, const act_t* x,
                                const act_t* w_qkv, std::int64_t rows, std::int64_t d, bool accumulate) {
  weight_gradient(dw_qkv, dqkv, x, 3 * d, d, rows, accumulate);
  product(GemmKind::kInput, dx, dqkv, w_qkv, nullptr, rows, d, 3 * d);
}

template <typename T>
void CudaOps<T>::k_attn_out_fwd(act_t* out, const act_t* att, const act_t* w_o, const act_t* residual,
                                std::int64_t rows, std::int64_t d) {
  product(GemmKind::kForward, out, att, w_o, residual, rows, d, d);
}

template <typename T>
void CudaOps<T>::k_attn_out_bwd(act_t* datt, float* dw_o, const act_t* dout, const act_t* att,
                                const act_t* w_o, std::int64_t rows, std::int64_t d, bool accumulate) {
  weight_gradient(dw_o, dout, att, d, d, rows, accumulate);
  product(GemmKind::kInput, datt, dout, w_o, nullptr, rows, d, d);
}

template <typename T>
void CudaOps<T>::k_head_fwd(act_t* logits, const act_t* x, const act_t* w, std::int64_t rows, std::int64_t d,
                            std::int64_t Vp) {
  product(GemmKind::kForward, logits, x, w, nullptr, rows, Vp, d);
}

template <typename T>
void CudaOps<T>::k_head_bwd(act_t* dx, float* dw, const act_t* dlogits, const act_t* x, const act_t* w,
                            std::int64_t rows, std::int64_t d, std::int64_t Vp, bool accumulate) {
  weight_gradient(dw, dlogits, x, Vp, d, rows, accumulate);
  product(GemmKind::kInput, dx, dlogits, w, nullptr, rows, d, Vp);
}

// The shared parts of the class are compiled here; the other methods in the files of their pairs.
#define ANDREA_INSTANTIATE(T)                                                                               \
  template std::size_t CudaOps<T>::scratch_bytes(const Extent&) const;                                      \
  template void CudaOps<T>::set_scratch(void*, std::size_t);                                                \
  template void* CudaOps<T>::scratch(std::size_t) const;                                                    \
  template void CudaOps<T>::product(GemmKind, void*, const void*, const void*, const void*, std::int64_t,   \
                                    std::int64_t, std::int64_t);                                            \
  template void CudaOps<T>::k_attn_qkv_fwd(act_t*, const act_t*, const act_t*, std::int64_t, std::int64_t); \
  template void CudaOps<T>::k_attn_qkv_bwd(act_t*, float*, const act_t*, const act_t*, const act_t*,        \
                                           std::int64_t, std::int64_t, bool);                               \
  template void CudaOps<T>::k_attn_out_fwd(act_t*, const act_t*, const act_t*, const act_t*, std::int64_t,  \
                                           std::int64_t);                                                   \
  template void CudaOps<T>::k_attn_out_bwd(act_t*, float*, const act_t*, const act_t*, const act_t*,        \
                                           std::int64_t, std::int64_t, bool);                               \
  template void CudaOps<T>::k_head_fwd(act_t*, const act_t*, const act_t*, std::int64_t, std::int64_t,      \
                                       std::int64_t);                                                       \
  template void CudaOps<T>::k_head_bwd(act_t*, float*, const act_t*, const act_t*, const act_t*,            \
                                       std::int64_t, std::int64_t, std::int64_t, bool);

ANDREA_INSTANTIATE(float)
ANDREA_INSTANTIATE(__half)
ANDREA_INSTANTIATE(__nv_bfloat16)
#undef ANDREA_INSTANTIATE

}  // namespace andrea::cuda
