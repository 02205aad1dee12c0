// Reductions with a fixed order: butterflies inside a warp, then the warps in order.
#pragma once

namespace andrea::cuda {

constexpr unsigned kFullWarp = 0xffffffffU;

/// Sum over groups of `kLanes` neighbouring lanes; every lane receives it.
template <int kLanes = 32, typename T>
__device__ __forceinline__ T warp_sum(T x) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) x += __shfl_xor_sync(kFullWarp, x, step);
  return x;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, step));
  return x;
}

/// Sum over a block of kWarps warps; every thread receives it. `shared` has kWarps elements.
template <int kWarps, typename T>
__device__ __forceinline__ T block_sum(T x, T* shared) {
  x = warp_sum(x);
  __syncthreads();  // an earlier use of `shared` is over
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();
  T sum = shared[0];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) sum += shared[w];
  return sum;
}

}  // namespace andrea::cuda
