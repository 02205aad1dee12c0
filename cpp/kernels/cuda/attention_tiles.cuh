// What the tensor-core kernels of attention share: the place of a head in qkv, and tiles from memory.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/vector.cuh"

namespace andrea::cuda {

constexpr float kLog2E = 1.44269504088896340736F;

/// Brings tiles of kRows rows of one head into shared memory, a thread always the same places of a tile: what
/// does not change from tile to tile is worked out once. Rows outside [0, rows) and columns outside [0, hd)
/// are zero.
template <typename T, int kWidth, int kThreads>
class TileLoader {
 public:
  /// `from` is row 0 of the head, rows are `step` elements apart.
  __device__ __forceinline__ TileLoader(const T* from, std::int64_t step, int rows, int hd, bool vectors)
      : from_(from + chunk() * 8), step_(step), rows_(rows), hd_(hd), vectors_(vectors) {}

  /// Rows first .. first + kRows - 1; finish with commit and wait.
  template <int kRows>
  __device__ __forceinline__ void load(T* tile, int first) const {
    constexpr int kPasses = (kRows + kPassRows - 1) / kPassRows;
    if (!vectors_) return load_elements<kRows>(tile, first);
    // A pass is a multiple of 8 rows, so that the permutation of chunks is the same in each.
    constexpr std::uint32_t kPassBytes = kPassRows * kWidth * 2;
    const std::uint32_t to = shared_address(tile) + Tile<kWidth>::offset(row(), chunk());
    const bool column_inside = chunk() * 8 < hd_;
    const T* source = from_ + (first + row()) * step_;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      if (kRows % kPassRows != 0 && row() + i * kPassRows >= kRows) break;
      const bool inside = column_inside && first + row() + i * kPassRows < rows_;
      copy_async16(to + static_cast<std::uint32_t>(i) * kPassBytes, inside ? source : from_, inside);
      source += kPassRows * step_;
    }
  }

 private:
  static constexpr int kChunks = kWidth / 8;
  static constexpr int kPassRows = kThreads / kChunks;
  static_assert(kPassRows % 8 == 0, "the permutation of chunks repeats every 8 rows");

  /// For head dims that are not multiples of 8.
  template <int kRows>
  __device__ __forceinline__ void load_elements(T* tile, int first) const {
#pragma unroll 1
    for (int r = row(); r < kRows; r += kPassRows) {
      T* const out = tile + Tile<kWidth>::offset(r, chunk()) / sizeof(T);
#pragma unroll 1
      for (int c = 0; c < 8; ++c) {
        const bool inside = first + r < rows_ && chunk() * 8 + c < hd_;
        out[c] = inside ? from_[(first + r) * step_ + c] : from_float<T>(0.0F);
      }
    }
  }
  __device__ __forceinline__ static int row() { return static_cast<int>(threadIdx.x) / kChunks; }
  __device__ __forceinline__ static int chunk() { return static_cast<int>(threadIdx.x) % kChunks; }

  const T* from_;
  std::int64_t step_;
  int rows_;
  int hd_;
  bool vectors_;
};

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
