// What the tensor-core kernels of attention share: the place of a head in qkv, and tiles from memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/vector.cuh"

namespace andrea::cuda {

constexpr float kLog2E = 1.44269504088896340736F;

/// Copies rows first .. first + kRows - 1 of one head into a tile; what lies outside [0, rows) x [0, hd) is
/// zero. `from` is row 0 of the head, rows are `step` elements apart. Finish with commit and wait.
template <typename T, int kWidth, int kRows, int kThreads>
__device__ __forceinline__ void load_tile(T* tile, const T* from, std::int64_t step, int first, int rows,
                                          int hd, bool vectors) {
  constexpr int kChunks = kWidth / 8;
  const std::uint32_t base = shared_address(tile);
#pragma unroll
  for (int i = 0; i < (kRows * kChunks + kThreads - 1) / kThreads; ++i) {
    const int item = i * kThreads + static_cast<int>(threadIdx.x);
    if (kRows * kChunks % kThreads != 0 && item >= kRows * kChunks) break;
    const int row = item / kChunks;
    const int chunk = item % kChunks;
    const bool inside = first + row < rows && chunk * 8 < hd;
    const T* const source = from + (inside ? static_cast<std::int64_t>(first + row) * step + chunk * 8 : 0);
    const std::uint32_t to = Tile<kWidth>::offset(row, chunk);
    if (vectors) {
      copy_async16(base + to, source, inside);
    } else {  // head dims that are not multiples of 8
      T* const out = reinterpret_cast<T*>(reinterpret_cast<char*>(tile) + to);
      for (int c = 0; c < 8; ++c) out[c] = inside && chunk * 8 + c < hd ? source[c] : from_float<T>(0.0F);
    }
  }
}

/// Stores a C tile (columns 8 n + 2 c, + 1) of row `row`.
template <typename T>
__device__ __forceinline__ void store_pair(T* row, int column, int hd, float x, float y, bool vectors) {
  if (vectors) {
    if (column < hd) *reinterpret_cast<std::uint32_t*>(row + column) = pack<T>(x, y);
  } else {
    if (column < hd) row[column] = from_float<T>(x);
    if (column + 1 < hd) row[column + 1] = from_float<T>(y);
  }
}

}  // namespace andrea::cuda
