#include "kernels/cuda/fp8_ops.h"

#include <algorithm>
#include <string>

#include "engine/errors.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/memory_rule.h"

namespace andrea::cuda {
namespace {

const __nv_bfloat16* numbers(const act_t* x) { return reinterpret_cast<const __nv_bfloat16*>(x); }
__nv_bfloat16* numbers(act_t* x) { return reinterpret_cast<__nv_bfloat16*>(x); }

}  // namespace

/// The scratch memory behind the products' workspace, handed out in turn to the factors of one operation.
class Fp8Ops::CastMemory {
 public:
  explicit CastMemory(void* scratch) : next_(static_cast<fp8_t*>(scratch) + kGemmWorkspaceBytes) {}
  fp8_t* take(std::int64_t bytes) {
    fp8_t* const memory = next_;
    next_ += (bytes + 255) / 256 * 256;
    return memory;
  }

 private:
  fp8_t* next_;
};

std::size_t Fp8Ops::scratch_bytes(const Extent& extent) const {
  return std::max(CudaOps::scratch_bytes(extent), static_cast<std::size_t>(fp8_scratch_bytes(extent)));
}

std::size_t Fp8Ops::kept_bytes(const Extent& extent) const {
  return static_cast<std::size_t>(kept_bytes_by_rule(extent, Precision::kFp8));
}

void Fp8Ops::set_kept(void* kept, const Extent& extent) {
  known_.clear();
  weights_used_.clear();
  places_.clear();
  arena_ = nullptr;
  decoding_ = false;
  absmaxes_ = static_cast<Absmax*>(kept);
  n_absmaxes_ = static_cast<std::size_t>(fp8_absmaxes(extent));
  saturated_ = reinterpret_cast<std::uint32_t*>(absmaxes_ + n_absmaxes_);
  pieces_ = saturated_ + 1;
  n_pieces_ = (extent.n_params + kAbsmaxPiece - 1) / kAbsmaxPiece;
  ANDREA_CUDA_CHECK(cudaMemsetAsync(kept, 0, kept_bytes(extent), stream_));
}

// ---- what is known of tensors

Fp8Ops::Known& Fp8Ops::known(const act_t* tensor) {
  if (const auto found = known_.find(tensor); found != known_.end()) return found->second;
  if (known_.size() == n_absmaxes_)  // no slot may be given to another: recorded steps go on using it
    throw DeviceError("FP8: more than the planned " + std::to_string(n_absmaxes_) +
                      " tensors; this is a bug in andrea, please report it with the experiment");
  Absmax* const absmax = absmaxes_ + known_.size();
  return known_.emplace(tensor, Known{absmax, false}).first->second;
}

void Fp8Ops::forget(const act_t* tensor) {
  if (const auto found = known_.find(tensor); found != known_.end()) found->second.current = false;
}

void Fp8Ops::forget(const act_t* begin, std::int64_t n) {
  const auto end = known_.lower_bound(reinterpret_cast<const act_t*>(numbers(begin) + n));
  for (auto entry = known_.lower_bound(begin); entry != end; ++entry) entry->second.current = false;
}

Absmax* Fp8Ops::absmax_of(const act_t* out) {
  if (n_absmaxes_ == 0) return nullptr;
  Known& tensor = known(out);
  tensor.current = true;
  return tensor.absmax;
}

const Absmax* Fp8Ops::absmax_in(const act_t* tensor, std::int64_t n) {
  const Known& entry = known(tensor);
  if (!entry.current) find_absmax(entry.absmax, numbers(tensor), n, stream_);
  return entry.absmax;
}

const Absmax* Fp8Ops::absmax_in_weights(const act_t* weights, std::int64_t n) {
  weights_used_[weights] = n;
  return absmax_in(weights, n);
}

void Fp8Ops::find_weights_absmax() {
  const act_t* const end = reinterpret_cast<const act_t*>(numbers(arena_) + n_arena_);
  if (places_.empty())
    for (const auto& [weights, n] : weights_used_)
      if (weights >= arena_ && weights < end)
        places_.push_back({numbers(weights) - numbers(arena_), n, known(weights).absmax});
  weights_absmax(places_, numbers(arena_), pieces_, stream_);
  forget(arena_, n_arena_);
  for (const WeightPlace& place : places_)
    known(reinterpret_cast<const act_t*>(numbers(arena_) + place.offset)).current = true;
}

// ---- casts and products

bool Fp8Ops::fits_fp8(std::int64_t rows, std::int64_t d) const {
  return n_absmaxes_ > 0 && !decoding_ && rows > 0 && rows % kFp8Multiple == 0 && d % kFp8Multiple == 0;
}

Fp8Ops::Factor Fp8Ops::cast(CastMemory& memory, const act_t* x, const Absmax* absmax, std::int64_t rows,
                            std::int64_t cols) {
  fp8_t* const to = memory.take(rows * cols);
  cast_to_fp8(to, nullptr, numbers(x), absmax, saturated_, rows, cols, stream_);
  return {to, &absmax->inverse_scale};
}

Fp8Ops::Factor Fp8Ops::cast_transposed(CastMemory& memory, const act_t* x, const Absmax* absmax,
                                       std::int64_t rows, std::int64_t cols) {
  fp8_t* const to = memory.take(rows * cols);
  cast_to_fp8(nullptr, to, numbers(x), absmax, saturated_, rows, cols, stream_);
  return {to, &absmax->inverse_scale};
}

std::pair<Fp8Ops::Factor, Fp8Ops::Factor> Fp8Ops::cast_gradient(CastMemory& memory, const act_t* dy,
                                                                std::int64_t rows, std::int64_t n) {
  const Absmax* const absmax = absmax_in(dy, rows * n);
  fp8_t* const plain = memory.take(rows * n);
  fp8_t* const transposed = memory.take(rows * n);
  cast_to_fp8(plain, transposed, numbers(dy), absmax, saturated_, rows, n, stream_);
  return {{plain, &absmax->inverse_scale}, {transposed, &absmax->inverse_scale}};
}

void Fp8Ops::multiply(GemmKind kind, void* out, const Factor& a, const Factor& b, const void* addend,
                      std::int64_t m, std::int64_t n, std::int64_t k) {
  gemm_.multiply_fp8(kind, out, a.values, b.values, {a.scale, b.scale}, addend, m, n, k,
                     scratch(kGemmWorkspaceBytes), stream_);
}

void Fp8Ops::linear_fwd(act_t* out, const act_t* x, const act_t* w, const act_t* residual, std::int64_t rows,
                        std::int64_t n, std::int64_t k) {
  CastMemory memory(scratch(kGemmWorkspaceBytes + static_cast<std::size_t>(rows * k + n * k)));
  const Factor x8 = cast(memory, x, absmax_in(x, rows * k), rows, k);
  const Factor w8 = cast(memory, w, absmax_in_weights(w, n * k), n, k);
  multiply(GemmKind::kForward8, out, x8, w8, residual, rows, n, k);
  forget(out);
}

void Fp8Ops::linear_bwd(act_t* dx, float* dw, const act_t* dy, const act_t* x, const act_t* w,
                        std::int64_t rows, std::int64_t n, std::int64_t k, bool accumulate) {
  CastMemory memory(scratch(kGemmWorkspaceBytes + static_cast<std::size_t>(rows * (2 * n + k) + n * k)));
  const auto [dy8, dy8_transposed] = cast_gradient(memory, dy, rows, n);
  const Factor x8 = cast_transposed(memory, x, absmax_in(x, rows * k), rows, k);
  multiply(GemmKind::kWeight8, dw, dy8_transposed, x8, accumulate ? dw : nullptr, n, k, rows);
  const Factor w8 = cast_transposed(memory, w, absmax_in_weights(w, n * k), n, k);
  multiply(GemmKind::kInput8, dx, dy8, w8, nullptr, rows, k, n);
  forget(dx);
}

// ---- the linear layers

void Fp8Ops::k_attn_qkv_fwd(act_t* qkv, const act_t* x, const act_t* w_qkv, std::int64_t rows,
                            std::int64_t d) {
  if (fits_fp8(rows, d)) return linear_fwd(qkv, x, w_qkv, nullptr, rows, 3 * d, d);
  CudaOps::k_attn_qkv_fwd(qkv, x, w_qkv, rows, d);
  forget(qkv);
}

void Fp8Ops::k_attn_qkv_bwd(act_t* dx, float* dw_qkv, const act_t* dqkv, const act_t* x, const act_t* w_qkv,
                            std::int64_t rows, std::int64_t d, bool accumulate) {
  if (fits_fp8(rows, d)) return linear_bwd(dx, dw_qkv, dqkv, x, w_qkv, rows, 3 * d, d, accumulate);
  CudaOps::k_attn_qkv_bwd(dx, dw_qkv, dqkv, x, w_qkv, rows, d, accumulate);
  forget(dx);
}

void Fp8Ops::k_attn_out_fwd(act_t* out, const act_t* att, const act_t* w_o, const act_t* residual,
                            std::int64_t rows, std::int64_t d) {
  if (fits_fp8(rows, d)) return linear_fwd(out, att, w_o, residual, rows, d, d);
  CudaOps::k_attn_out_fwd(out, att, w_o, residual, rows, d);
  forget(out);
}

void Fp8Ops::k_attn_out_bwd(act_t* datt, float* dw_o, const act_t* dout, const act_t* att, const act_t* w_o,
                            std::int64_t rows, std::int64_t d, bool accumulate) {
  if (fits_fp8(rows, d)) return linear_bwd(datt, dw_o, dout, att, w_o, rows, d, d, accumulate);
  CudaOps::k_attn_out_bwd(datt, dw_o, dout, att, w_o, rows, d, accumulate);
  forget(datt);
}

void Fp8Ops::k_mlp_fwd(act_t* out, act_t* h, act_t* g, const act_t* x, const act_t* w_1, const act_t* w_2,
                       const act_t* residual, std::int64_t rows, std::int64_t d) {
  if (!fits_fp8(rows, d)) {
    CudaOps::k_mlp_fwd(out, h, g, x, w_1, w_2, residual, rows, d);
    for (const act_t* written : {out, h, g}) forget(written);
    return;
  }
  linear_fwd(h, x, w_1, nullptr, rows, 4 * d, d);
  gelu_with_absmax(numbers(g), absmax_of(g), numbers(h), rows * 4 * d, stream_);
  linear_fwd(out, g, w_2, residual, rows, d, 4 * d);
}

void Fp8Ops::k_mlp_bwd(act_t* dx, float* dw_1, float* dw_2, act_t* dh, const act_t* dout, const act_t* x,
                       const act_t* h, act_t* g, const act_t* w_1, const act_t* w_2, std::int64_t rows,
                       std::int64_t d, bool recompute_g, bool accumulate) {
  if (!fits_fp8(rows, d)) {
    CudaOps::k_mlp_bwd(dx, dw_1, dw_2, dh, dout, x, h, g, w_1, w_2, rows, d, recompute_g, accumulate);
    for (const act_t* written :
         {static_cast<const act_t*>(dx), static_cast<const act_t*>(dh), static_cast<const act_t*>(g)})
      forget(written);
    return;
  }
  const std::int64_t wide = 4 * d;
  CastMemory memory(
      scratch(kGemmWorkspaceBytes + static_cast<std::size_t>(rows * (2 * d + wide) + d * wide)));
  const auto [dout8, dout8_transposed] = cast_gradient(memory, dout, rows, d);
  const auto gradient_of_w_2 = [&, turned = &dout8_transposed] {
    const Factor g8 = cast_transposed(memory, g, absmax_in(g, rows * wide), rows, wide);
    multiply(GemmKind::kWeight8, dw_2, *turned, g8, accumulate ? dw_2 : nullptr, d, wide, rows);
  };
  // Where dh is h, dL/dg needs memory of its own: that of g, which is computed again, or has been read.
  act_t* const dg = recompute_g || dh == h ? g : dh;
  if (!recompute_g) gradient_of_w_2();
  const Factor w8 = cast_transposed(memory, w_2, absmax_in_weights(w_2, d * wide), d, wide);
  multiply(GemmKind::kInput8, dg, dout8, w8, nullptr, rows, wide, d);
  forget(dg);
  gelu_backward_with_absmax(numbers(dh), absmax_of(dh), numbers(g), recompute_g ? absmax_of(g) : nullptr,
                            numbers(dg), numbers(h), rows * wide, stream_);
  if (recompute_g) gradient_of_w_2();
  linear_bwd(dx, dw_1, dh, x, w_1, rows, wide, d, accumulate);
}

// ---- weights

void Fp8Ops::k_cast_weights(act_t* out, const float* in, std::int64_t n) {
  const bool arena = out == arena_ && n == n_arena_;
  absmax_pieces_ = arena ? pieces_ : nullptr;
  CudaOps::k_cast_weights(out, in, n);
  absmax_pieces_ = nullptr;
  if (arena) return find_weights_absmax();
  forget(out, n);
  // Recorded work may rely on the magnitudes of weights it has used before: they are found at once.
  const act_t* const end = reinterpret_cast<const act_t*>(numbers(out) + n);
  for (auto used = weights_used_.lower_bound(out); used != weights_used_.end() && used->first < end; ++used) {
    find_absmax(known(used->first).absmax, numbers(used->first), used->second, stream_);
    known(used->first).current = true;
  }
}

void Fp8Ops::k_adamw(float* params, float* m, float* v, act_t* compute_weights, const float* grads,
                     const StepControl* control, const StepStatus* status, std::int64_t n,
                     std::int64_t n_decay, std::int64_t n_compute) {
  const bool pieces = compute_weights != nullptr && n <= n_pieces_ * kAbsmaxPiece;
  if (pieces && (arena_ != compute_weights || n_arena_ != n_compute)) {
    arena_ = compute_weights;
    n_arena_ = n_compute;
    places_.clear();
  }
  absmax_pieces_ = pieces ? pieces_ : nullptr;
  CudaOps::k_adamw(params, m, v, compute_weights, grads, control, status, n, n_decay, n_compute);
  absmax_pieces_ = nullptr;
  if (pieces)
    find_weights_absmax();
  else if (compute_weights != nullptr)
    forget(compute_weights, n_compute);
}

void Fp8Ops::k_grad_norm_final(StepStatus* status, const double* partials, std::int64_t n_partials,
                               const float* row_losses, std::int64_t n_rows, const StepControl* control) {
  CudaOps::k_grad_norm_final(status, partials, n_partials, row_losses, n_rows, control);
  if (saturated_ != nullptr) take_count(&status->fp8_saturated, saturated_, stream_);
}

// ---- writers that leave no largest magnitude

void Fp8Ops::k_embed_fwd(act_t* x, const std::int32_t* ids, const act_t* tok_embed, const act_t* pos_embed,
                         std::int64_t B, std::int64_t T, std::int64_t d) {
  decoding_ = false;
  CudaOps::k_embed_fwd(x, ids, tok_embed, pos_embed, B, T, d);
  forget(x);
}

void Fp8Ops::k_embed_decode_fwd(act_t* x, const std::int32_t* ids, const std::int32_t* position,
                                const act_t* tok_embed, const act_t* pos_embed, std::int64_t B,
                                std::int64_t d) {
  decoding_ = true;
  CudaOps::k_embed_decode_fwd(x, ids, position, tok_embed, pos_embed, B, d);
  forget(x);
}

void Fp8Ops::k_attn_decode_fwd(act_t* out, act_t* kv_cache, const act_t* qkv, const std::int32_t* position,
                               std::int64_t B, std::int64_t T_max, std::int64_t H, std::int64_t hd) {
  CudaOps::k_attn_decode_fwd(out, kv_cache, qkv, position, B, T_max, H, hd);
  forget(out);
}

void Fp8Ops::k_residual_add(act_t* out, const act_t* a, const act_t* b, std::int64_t n) {
  CudaOps::k_residual_add(out, a, b, n);
  forget(out);
}

void Fp8Ops::k_residual_add_bwd(act_t* da, act_t* db, const act_t* dout, std::int64_t n) {
  CudaOps::k_residual_add_bwd(da, db, dout, n);
  forget(da);
  forget(db);
}

void Fp8Ops::k_head_fwd(act_t* logits, const act_t* x, const act_t* w, std::int64_t rows, std::int64_t d,
                        std::int64_t Vp) {
  CudaOps::k_head_fwd(logits, x, w, rows, d, Vp);
  forget(logits);
}

void Fp8Ops::k_head_bwd(act_t* dx, float* dw, const act_t* dlogits, const act_t* x, const act_t* w,
                        std::int64_t rows, std::int64_t d, std::int64_t Vp, bool accumulate) {
  CudaOps::k_head_bwd(dx, dw, dlogits, x, w, rows, d, Vp, accumulate);
  forget(dx);
}

void Fp8Ops::k_loss_bwd(act_t* dlogits, const act_t* logits, const std::int32_t* targets, float scale,
                        const StepStatus* status, std::int64_t rows, std::int64_t V, std::int64_t Vp) {
  CudaOps::k_loss_bwd(dlogits, logits, targets, scale, status, rows, V, Vp);
  forget(dlogits);
}

void Fp8Ops::k_loss_fwd_bwd(float* losses, act_t* logits, const std::int32_t* targets, float scale,
                            const StepStatus* status, std::int64_t rows, std::int64_t V, std::int64_t Vp) {
  CudaOps::k_loss_fwd_bwd(losses, logits, targets, scale, status, rows, V, Vp);
  forget(logits);
}

}  // namespace andrea::cuda
