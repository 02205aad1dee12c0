// k_attn_fwd / k_attn_bwd / k_attn_decode_fwd: causal softmax attention, S = Q K^T / sqrt(hd), P =
// softmax(S), out = P V. Never a [T, T] array in memory: tiles of S live in registers (FlashAttention; Dao et
// al. 2022).
//   forward   for each tile of queries, a running maximum and sum over the tiles of keys up to the diagonal;
//             saves lse = max + log(sum), from which P = exp(S - lse) can be had again.
//   backward  with delta = sum_j dout_j out_j:  dV = P^T dout,  dS = P (dout V^T - delta),
//             dQ = dS K / sqrt(hd),  dK = dS^T Q / sqrt(hd).
//             16-bit types: one kernel goes over key tiles for each query tile (delta, dQ), one over query
//             tiles for each key tile (dK, dV). P is computed twice that way (7 products instead of 5), but
//             every gradient has one owner that adds in a fixed order.
//             float32, where products cost most: one kernel over query tiles for each key tile, which adds
//             its part of dQ when its turn has come: 5 products, again in a fixed order.
//             No float atomics: deterministic.
// FLOPs, causal half: forward 2 B H T^2 hd, backward 7 (float32: 5) B H T^2 hd. Bytes: reads and writes of
// the arrays, each tile of K and V once for each tile of queries (from L2). 16-bit types: attention_mma_*.cu,
// and on sm_90 attention_hopper_*.cu (head dims that are multiples of 8, up to 64); float32:
// attention_fp32.cu (no TF32). Head dims up to 128; those that are not 32, 64 or 128 are padded with zeros in
// shared memory.
#include "kernels/cuda/attention.h"

#include <string>

#include "engine/errors.h"
#include "kernels/cuda/cuda_ops.h"

namespace andrea::cuda {
namespace {

void check_shape(std::int64_t B, std::int64_t H, std::int64_t hd) {
  if (hd > kMaxHeadDim)
    throw ConfigError("head dim " + std::to_string(hd) + ": CUDA attention takes at most " +
                      std::to_string(kMaxHeadDim) + " (raise n_head)");
  if (B > kMostSequences || H > kMostSequences)
    throw ConfigError("CUDA attention takes at most " + std::to_string(kMostSequences) +
                      " sequences and heads, not " + std::to_string(B) + " and " + std::to_string(H));
}

/// Heads that are whole chunks of 16 bytes, in arrays that begin with one.
template <typename... P>
bool hopper_takes(std::int64_t hd, const P*... arrays) {
  return hd <= kHopperHeadDim && hd % 8 == 0 && ((reinterpret_cast<std::uintptr_t>(arrays) % 16 == 0) && ...);
}

}  // namespace

std::size_t attn_bwd_scratch(std::int64_t B, std::int64_t T, std::int64_t H) {
  // delta, then (float32) a turn for every tile of dQ and a counter of blocks
  return static_cast<std::size_t>(B * H * (T + (T + 31) / 32) + 1) * sizeof(float);
}

template <typename T>
void CudaOps<T>::k_attn_fwd(act_t* out, float* lse, const act_t* qkv, std::int64_t B, std::int64_t T_,
                            std::int64_t H, std::int64_t hd) {
  check_shape(B, H, hd);
  if (B * T_ * H == 0) return;
  const AttentionShape shape{B, T_, H, hd};
  Absmax* const absmax = absmax_of(out);
  if constexpr (kWithHopper && sizeof(T) == 2)
    if (hopper_ && hopper_takes(hd, out, qkv))
      return attention_forward_hopper<T>(typed(out), lse, typed(qkv), shape, absmax, stream_);
  attention_forward<T>(typed(out), lse, typed(qkv), shape, absmax, stream_);
}

template <typename T>
void CudaOps<T>::k_attn_bwd(act_t* dqkv, const act_t* dout, const act_t* out, const act_t* qkv,
                            const float* lse, std::int64_t B, std::int64_t T_, std::int64_t H,
                            std::int64_t hd) {
  check_shape(B, H, hd);
  if (B * T_ * H == 0) return;
  const AttentionShape shape{B, T_, H, hd};
  Absmax* const absmax = absmax_of(dqkv);
  auto* const delta = static_cast<float*>(scratch(attn_bwd_scratch(B, T_, H)));
  if constexpr (kWithHopper && sizeof(T) == 2)
    if (hopper_ && hopper_takes(hd, dqkv, dout, out, qkv))
      return attention_backward_hopper<T>(typed(dqkv), typed(dout), typed(out), typed(qkv), lse, delta, shape,
                                          absmax, stream_);
  attention_backward<T>(typed(dqkv), typed(dout), typed(out), typed(qkv), lse, delta, shape, absmax, stream_);
}

template <typename T>
void CudaOps<T>::k_attn_decode_fwd(act_t* out, act_t* kv_cache, const act_t* qkv,
                                   const std::int32_t* position, std::int64_t B, std::int64_t T_max,
                                   std::int64_t H, std::int64_t hd) {
  check_shape(B, H, hd);
  attention_decode<T>(typed(out), typed(kv_cache), typed(qkv), position, B, T_max, H, hd, stream_);
}

#define ANDREA_INSTANTIATE(T)                                                                          \
  template void CudaOps<T>::k_attn_fwd(act_t*, float*, const act_t*, std::int64_t, std::int64_t,       \
                                       std::int64_t, std::int64_t);                                    \
  template void CudaOps<T>::k_attn_bwd(act_t*, const act_t*, const act_t*, const act_t*, const float*, \
                                       std::int64_t, std::int64_t, std::int64_t, std::int64_t);        \
  template void CudaOps<T>::k_attn_decode_fwd(act_t*, act_t*, const act_t*, const std::int32_t*,       \
                                              std::int64_t, std::int64_t, std::int64_t, std::int64_t);
ANDREA_INSTANTIATE(float)
ANDREA_INSTANTIATE(__half)
ANDREA_INSTANTIATE(__nv_bfloat16)
#undef ANDREA_INSTANTIATE

}  // namespace andrea::cuda
