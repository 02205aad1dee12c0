// A loop over n independent elements with 128-bit accesses where the pointers allow them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/check.h"
#include "kernels/cuda/vector.cuh"

namespace andrea::cuda {

/// Calls body.template run<N>(offset) for every group of N elements, then for the remaining ones with N = 1.
template <int N, typename Body>
__global__ void __launch_bounds__(256) k_elementwise(Body body, std::int64_t n) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t groups = n / N;
  for (std::int64_t i = first; i < groups; i += stride) body.template run<N>(i * N);
  for (std::int64_t i = groups * N + first; i < n; i += stride) body.template run<1>(i);
}

template <int N, typename Body>
void launch_elementwise(const Body& body, std::int64_t n, bool aligned, cudaStream_t stream) {
  if (n <= 0) return;
  const std::int64_t per_block = 256 * static_cast<std::int64_t>(aligned ? N : 1);
  const std::int64_t wanted = (n + per_block - 1) / per_block;
  const auto blocks = static_cast<unsigned>(wanted < 16384 ? wanted : 16384);
  if (aligned)
    k_elementwise<N><<<blocks, 256, 0, stream>>>(body, n);
  else
    k_elementwise<1><<<blocks, 256, 0, stream>>>(body, n);
  ANDREA_CUDA_LAUNCHED("k_elementwise");
}

}  // namespace andrea::cuda
