// The launchers of attention, by arithmetic: tensor cores for 16-bit types, FMA for float32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/absmax.h"

namespace andrea::cuda {

/// Sizes of one call. qkv is [B, T, 3, H, hd], out [B, T, H, hd], lse and delta [B, H, T].
struct AttentionShape {
  std::int64_t B, T, H, hd;
};
constexpr std::int64_t kMaxHeadDim = 128;

// absmax, if not null, receives the largest magnitude of the result (16-bit types only).

template <typename T>
void attention_forward(T* out, float* lse, const T* qkv, const AttentionShape& shape, Absmax* absmax,
                       cudaStream_t stream);

/// Kernels for sm_90a are part of this build.
#ifdef ANDREA_WITH_HOPPER
constexpr bool kWithHopper = true;
#else
constexpr bool kWithHopper = false;
#endif

/// The same for 16-bit types by the tensor cores of sm_90a: head dims that are multiples of 8 up to
/// kHopperHeadDim, arrays aligned to 16 bytes.
constexpr std::int64_t kHopperHeadDim = 64;
template <typename T>
void attention_forward_hopper(T* out, float* lse, const T* qkv, const AttentionShape& shape, Absmax* absmax,
                              cudaStream_t stream);
template <typename T>
void attention_backward_hopper(T* dqkv, const T* dout, const T* out, const T* qkv, const float* lse,
                               float* delta, const AttentionShape& shape, Absmax* absmax,
                               cudaStream_t stream);

/// delta is working memory: attn_bwd_scratch bytes.
template <typename T>
void attention_backward(T* dqkv, const T* dout, const T* out, const T* qkv, const float* lse, float* delta,
                        const AttentionShape& shape, Absmax* absmax, cudaStream_t stream);

template <typename T>
void attention_decode(T* out, T* cache, const T* qkv, const std::int32_t* position, std::int64_t B,
                      std::int64_t T_max, std::int64_t H, std::int64_t hd, cudaStream_t stream);

}  // namespace andrea::cuda
