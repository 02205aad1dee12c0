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

[[noreturn]] void beyond_the_plan(const char* what) {
  throw DeviceError(
      std::string("FP8: more ") + what +
      " than the memory plan knows; this is a bug in andrea, please report it with the experiment");
}

}  // namespace

Fp8Ops::Factor Fp8Ops::CastMemory::take(std::int64_t n) {
  const std::int64_t bytes = fp8_factor_bytes(n);
  if (bytes > end_ - next_) beyond_the_plan("factors");
  const Factor factor{next_, reinterpret_cast<float*>(next_ + bytes - kFp8FactorAlignment)};
  next_ += bytes;
  return factor;
}

std::size_t Fp8Ops::scratch_bytes(const Extent& extent) const {
  return std::max(CudaOps::scratch_bytes(extent), static_cast<std::size_t>(fp8_scratch_bytes(extent)));
}

std::size_t Fp8Ops::kept_bytes(const Extent& extent) const {
  return static_cast<std::size_t>(kept_bytes_by_rule(extent, Precision::kFp8));
}

void Fp8Ops::set_kept(void* kept, const Extent& extent) {
  written_.clear();
  weights_.clear();
  places_.clear();
  places_fixed_ = false;
  arena_ = nullptr;
  decoding_ = false;
  const std::size_t bytes = kept_bytes(extent);
  const auto factor_bytes = static_cast<std::size_t>(fp8_kept_factor_bytes(extent));
  keeps_factors_ = factor_bytes > 0;
  factors_ = CastMemory(kept, factor_bytes);  // in front, where the alignment is the region's
  most_rows_ = extent.batch * extent.context;
  absmaxes_ = reinterpret_cast<Absmax*>(static_cast<char*>(kept) + factor_bytes);
  n_absmaxes_ = fp8_absmaxes(extent);
  used_absmaxes_ = 0;
  weights_absmaxes_ = absmaxes_ + n_absmaxes_;
  n_weights_ = fp8_weights(extent);
  saturated_ = reinterpret_cast<std::uint32_t*>(weights_absmaxes_ + n_weights_);
  pieces_ = saturated_ + 1;
  n_pieces_ = (extent.n_params + kAbsmaxPiece - 1) / kAbsmaxPiece;
  ANDREA_CUDA_CHECK(cudaMemsetAsync(absmaxes_, 0, bytes - factor_bytes, stream_));
}

// ---- largest magnitudes

void Fp8Ops::begin_pass() {
  written_.clear();
  used_absmaxes_ = 0;
  ANDREA_CUDA_CHECK(
      cudaMemsetAsync(absmaxes_, 0, static_cast<std::size_t>(n_absmaxes_) * sizeof(Absmax), stream_));
}

// A pass of the model needs fewer than there are. Who calls operations without end loses what was known.
void Fp8Ops::reserve_absmaxes(std::int64_t n) {
  if (used_absmaxes_ + n > n_absmaxes_) begin_pass();
}

Absmax* Fp8Ops::next_absmax() {
  reserve_absmaxes(1);
  return absmaxes_ + used_absmaxes_++;
}

Absmax* Fp8Ops::absmax_of(const act_t* out) {
  forget(out);
  if (n_absmaxes_ == 0 || decoding_) return nullptr;
  Absmax* const absmax = next_absmax();
  written_[out] = absmax;
  return absmax;
}

const Absmax* Fp8Ops::absmax_in(const act_t* tensor, std::int64_t n) {
  if (const auto found = written_.find(tensor); found != written_.end()) return found->second;
  Absmax* const absmax = next_absmax();
  find_absmax(absmax, numbers(tensor), n, stream_);
  written_[tensor] = absmax;
  return absmax;
}

Fp8Ops::Weights& Fp8Ops::weights(const act_t* w, std::int64_t n) {
  auto entry = weights_.find(w);
  if (entry == weights_.end()) {
    const auto count = static_cast<std::int64_t>(weights_.size());
    if (count == n_weights_) beyond_the_plan("weights");  // nobody's slot may change: recorded steps use it
    entry = weights_.emplace(w, Weights{n, weights_absmaxes_ + count, false, {}, {}}).first;
  }
  Weights& known = entry->second;
  if (!known.current) {
    ANDREA_CUDA_CHECK(cudaMemsetAsync(known.absmax, 0, sizeof(Absmax), stream_));
    find_absmax(known.absmax, numbers(w), n, stream_);
    // AdamW, once it is recorded, changes no flag here: it has to be one of those that it finds itself.
    const act_t* const end = reinterpret_cast<const act_t*>(numbers(arena_) + n_arena_);
    const bool left_out = places_fixed_ && w >= arena_ && w < end;
    known.current = !left_out;
  }
  return known;
}

void Fp8Ops::find_weights_absmax() {
  const act_t* const end = reinterpret_cast<const act_t*>(numbers(arena_) + n_arena_);
  const auto first = weights_.lower_bound(arena_), last = weights_.lower_bound(end);
  if (!places_fixed_)
    for (auto used = first; used != last; ++used)
      places_.push_back({numbers(used->first) - numbers(arena_), used->second.n, used->second.absmax});
  places_fixed_ = true;
  weights_absmax(places_, numbers(arena_), pieces_, stream_);
  for (auto used = first; used != last; ++used) used->second.current = false;
  for (const WeightPlace& place : places_)
    weights_.at(reinterpret_cast<const act_t*>(numbers(arena_) + place.offset)).current = true;
}

// ---- casts and products

bool Fp8Ops::fits_fp8(std::int64_t rows, std::int64_t d) const {
  return n_absmaxes_ > 0 && !decoding_ && rows > 0 && rows % kFp8Multiple == 0 && d % kFp8Multiple == 0;
}

Fp8Ops::CastMemory Fp8Ops::scratch_for(std::int64_t factors) {
  constexpr std::int64_t kMostFactors = 4;  // of one operation
  const auto bytes = static_cast<std::size_t>(factors + kMostFactors * fp8_factor_bytes(0));
  char* const begin = static_cast<char*>(scratch(kGemmWorkspaceBytes + bytes));
  return {begin + kGemmWorkspaceBytes, bytes};
}

void Fp8Ops::cast(Factor& plain, const Factor& transposed, const act_t* x, const Absmax* absmax,
                  std::int64_t rows, std::int64_t cols, bool gelu) {
  if (transposed.values != nullptr) plain.inverse_scale = transposed.inverse_scale;
  const Fp8Out out{plain.values, transposed.values, plain.inverse_scale};
  (gelu ? cast_gelu_to_fp8 : cast_to_fp8)(out, numbers(x), absmax, saturated_, rows, cols, stream_);
}

Fp8Ops::Factor Fp8Ops::cast_transposed(CastMemory& memory, const act_t* x, const Absmax* absmax,
                                       std::int64_t rows, std::int64_t cols) {
  Factor none;
  const Factor transposed = memory.take(rows * cols);
  cast(none, transposed, x, absmax, rows, cols);
  return transposed;
}

std::pair<Fp8Ops::Factor, Fp8Ops::Factor> Fp8Ops::cast_gradient(CastMemory& memory, const act_t* dy,
                                                                std::int64_t rows, std::int64_t n) {
  Factor plain = memory.take(rows * n);
  const Factor transposed = memory.take(rows * n);
  cast(plain, transposed, dy, absmax_in(dy, rows * n), rows, n);
  return {plain, transposed};
}

const Fp8Ops::Weights& Fp8Ops::kept_with(const act_t* w) const {
  const auto found = weights_.find(w);
  if (found == weights_.end() || found->second.input.values == nullptr)
    throw DeviceError(
        "FP8: a backward pass before its forward pass; this is a bug in andrea, please report it");
  return found->second;
}

Fp8Ops::Factor Fp8Ops::input_for_bwd(CastMemory& memory, const act_t* x, const act_t* w, std::int64_t rows,
                                     std::int64_t k) {
  if (!keeps_factors_) return cast_transposed(memory, x, absmax_in(x, rows * k), rows, k);
  const Weights& kept = kept_with(w);
  if (kept.input_rows != rows)
    throw DeviceError(
        "FP8: a backward pass of other rows than its forward pass; this is a bug in andrea, "
        "please report it");
  return kept.input;
}

Fp8Ops::Factor Fp8Ops::weights_for_bwd(CastMemory& memory, const act_t* w, std::int64_t n, std::int64_t k) {
  if (keeps_factors_) return kept_with(w).transposed;
  return cast_transposed(memory, w, weights(w, n * k).absmax, n, k);
}

void Fp8Ops::multiply(GemmKind kind, void* out, const Factor& a, const Factor& b, const void* addend,
                      std::int64_t m, std::int64_t n, std::int64_t k) {
  gemm_.multiply_fp8(kind, out, a.values, b.values, {a.inverse_scale, b.inverse_scale}, addend, m, n, k,
                     scratch(kGemmWorkspaceBytes), stream_);
}

void Fp8Ops::linear_fwd(act_t* out, const act_t* x, const act_t* w, const act_t* residual, std::int64_t rows,
                        std::int64_t n, std::int64_t k, bool gelu) {
  Weights& known = weights(w, n * k);
  if (keeps_factors_) {
    if (rows > most_rows_) beyond_the_plan("rows");
    if (known.input.values == nullptr) {
      known.input = factors_.take(most_rows_ * k);
      known.transposed = factors_.take(n * k);
    }
    known.input_rows = rows;
  }
  CastMemory memory = scratch_for(rows * k + n * k);
  Factor x8 = memory.take(rows * k), w8 = memory.take(n * k);
  const Absmax* absmax = nullptr;
  if (gelu) {
    Absmax* const of_gelu = next_absmax();
    gelu_with_absmax(nullptr, of_gelu, numbers(x), rows * k, stream_);
    absmax = of_gelu;
  } else {
    absmax = absmax_in(x, rows * k);
  }
  cast(x8, known.input, x, absmax, rows, k, gelu);
  cast(w8, known.transposed, w, known.absmax, n, k);
  multiply(GemmKind::kForward8, out, x8, w8, residual, rows, n, k);
  forget(out);
}

void Fp8Ops::linear_bwd(act_t* dx, float* dw, const act_t* dy, const act_t* x, const act_t* w,
                        std::int64_t rows, std::int64_t n, std::int64_t k, bool accumulate) {
  CastMemory memory = scratch_for(rows * (2 * n + k) + n * k);
  const auto [dy8, dy8_transposed] = cast_gradient(memory, dy, rows, n);
  const Factor x8 = input_for_bwd(memory, x, w, rows, k);
  multiply(GemmKind::kWeight8, dw, dy8_transposed, x8, accumulate ? dw : nullptr, n, k, rows);
  const Factor w8 = weights_for_bwd(memory, w, n, k);
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
  if (keeps_factors_) return linear_fwd(out, h, w_2, residual, rows, d, 4 * d, /*gelu=*/true);
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
  CastMemory memory = scratch_for(rows * (2 * d + wide) + d * wide);
  const auto [dout8, dout8_transposed] = cast_gradient(memory, dout, rows, d);
  const auto gradient_of_w_2 = [&, turned = &dout8_transposed] {
    const Factor g8 = input_for_bwd(memory, g, w_2, rows, wide);
    multiply(GemmKind::kWeight8, dw_2, *turned, g8, accumulate ? dw_2 : nullptr, d, wide, rows);
  };
  // Where dh is h, dL/dg needs memory of its own: that of g, which is computed again, or has been read.
  act_t* const dg = recompute_g || dh == h ? g : dh;
  if (!recompute_g) gradient_of_w_2();
  const Factor w8 = weights_for_bwd(memory, w_2, d, wide);
  multiply(GemmKind::kInput8, dg, dout8, w8, nullptr, rows, wide, d);
  forget(dg);
  reserve_absmaxes(2);
  Absmax* const of_dh = absmax_of(dh);
  gelu_backward_with_absmax(numbers(dh), of_dh, numbers(g), recompute_g ? absmax_of(g) : nullptr, numbers(dg),
                            numbers(h), rows * wide, stream_);
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
  const act_t* const end = reinterpret_cast<const act_t*>(numbers(out) + n);
  written_.erase(written_.lower_bound(out), written_.lower_bound(end));
  // Recorded work may rely on the magnitudes of weights it has used before: they are found at once.
  for (auto used = weights_.lower_bound(out); used != weights_.lower_bound(end); ++used) {
    used->second.current = false;
    weights(used->first, used->second.n);
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
    places_fixed_ = false;
  }
  absmax_pieces_ = pieces ? pieces_ : nullptr;
  CudaOps::k_adamw(params, m, v, compute_weights, grads, control, status, n, n_decay, n_compute);
  absmax_pieces_ = nullptr;
  if (pieces)
    find_weights_absmax();
  else if (compute_weights != nullptr)
    for (auto& used : weights_) used.second.current = false;
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
  if (n_absmaxes_ > 0) begin_pass();
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
