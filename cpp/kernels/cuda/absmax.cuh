// The largest magnitude of a tensor, found by the kernel that writes it, and the power of two by which FP8
// scales it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/absmax.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace andrea::cuda {

/// Bits that order what is stored for `x` by magnitude: NaN above infinity above every number.
template <typename T>
__device__ __forceinline__ std::uint32_t magnitude(float x) {
  return __float_as_uint(to_float(from_float<T>(x))) & 0x7fffffffU;
}
/// 2^-e for the largest e with magnitude * 2^e <= 448, the largest E4M3 number; e stays within +-126. 1 for a
/// tensor of zeros, NaN for one with an element that is not finite: then every product with it is NaN.
__device__ __forceinline__ float inverse_scale_of(std::uint32_t largest) {
  if (largest >= 0x7f800000U) return __uint_as_float(0x7fffffffU);
  if (largest == 0) return 1.0F;
  const int exponent = static_cast<int>(largest >> 23) - 127;
  const int room = (largest & 0x007fffffU) <= 0x00600000U ? 8 : 7;  // 448 is 1.75 * 2^8
  const int e = min(max(room - exponent, -126), 126);
  return __uint_as_float(static_cast<std::uint32_t>(127 - e) << 23);
}

/// Every thread of every block of a kernel calls it with the largest magnitude it has seen. No block waits
/// for another, nor for what it has written itself: readers come in a later kernel. Maxima do not depend on
/// their order: deterministic.
__device__ __forceinline__ void publish_largest(Absmax* slot, std::uint32_t mine) {
  __shared__ std::uint32_t of_block;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  mine = __reduce_max_sync(kFullWarp, mine);
  if (threadIdx.x % 32 == 0) atomicMax(&of_block, mine);
  __syncthreads();
  // The maximum only grows: an old value costs an atomic, never a wrong result.
  if (threadIdx.x == 0 && of_block > __ldcg(&slot->bits)) atomicMax(&slot->bits, of_block);
}

/// What a thread has stored of a tensor, for kernels that are asked for the largest magnitude (slot) or not.
template <typename T>
struct Largest {
  Absmax* slot;
  std::uint32_t value = 0;

  __device__ __forceinline__ void see(float x) { value = max(value, magnitude<T>(x)); }
  template <int N>
  __device__ __forceinline__ void see(const float (&x)[N]) {
    if (slot == nullptr) return;
#pragma unroll
    for (int i = 0; i < N; ++i) see(x[i]);
  }
  __device__ __forceinline__ void see(float x, float y) {
    if (slot == nullptr) return;
    see(x);
    see(y);
  }
  __device__ __forceinline__ void publish() {
    if (slot != nullptr) publish_largest(slot, value);
  }
};

/// body.template run<N> over n elements, kAbsmaxPiece of them a block. Then the block leaves in
/// pieces[blockIdx.x] the largest magnitude among its own of the n_written at `written`, which the body wrote
/// or, where a step is skipped, left as they were.
template <int N, typename Body, typename T>
__global__ void __launch_bounds__(256) k_with_pieces(Body body, std::int64_t n, const T* written,
                                                     std::int64_t n_written, std::uint32_t* pieces) {
  __shared__ std::uint32_t of_block;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  std::uint32_t largest = 0;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * kAbsmaxPiece;
  for (std::int64_t at = begin + N * threadIdx.x; at < begin + kAbsmaxPiece; at += 256 * N) {
    if (at + N <= n)
      body.template run<N>(at);
    else
      for (std::int64_t i = at; i < n; ++i) body.template run<1>(i);
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (at + i < n_written) largest = max(largest, magnitude<T>(to_float(written[at + i])));
  }
  largest = __reduce_max_sync(kFullWarp, largest);
  if (threadIdx.x % 32 == 0) atomicMax(&of_block, largest);
  __syncthreads();
  if (threadIdx.x == 0) pieces[blockIdx.x] = of_block;
}

template <typename Body, typename T>
void launch_with_pieces(const Body& body, std::int64_t n, bool aligned, const T* written,
                        std::int64_t n_written, std::uint32_t* pieces, cudaStream_t stream) {
  const unsigned blocks = blocks_for(n, kAbsmaxPiece);
  if (aligned)
    k_with_pieces<4><<<blocks, 256, 0, stream>>>(body, n, written, n_written, pieces);
  else
    k_with_pieces<1><<<blocks, 256, 0, stream>>>(body, n, written, n_written, pieces);
  ANDREA_CUDA_LAUNCHED("k_with_pieces");
}

}  // namespace andrea::cuda
