// bfloat16 to E4M3, in the layout of the source, transposed, or both in one pass; GELU on the way if wanted.
// Hopper's FP8 products take both factors with the summed index last, so backward needs transposed operands:
// a tile of 128 x 64 elements is read once, and turned in shared memory. A thread has 4 rows x 8 columns and
// writes a column's 4 numbers as one word; words are exchanged by xor with their column group, so that
// neither the writes nor the 128-bit reads of a warp meet in a bank. Bytes: 2 read and 1 or 2 written an
// element.
#include <cuda_fp8.h>

#include "kernels/cuda/absmax.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/vector.cuh"

namespace andrea::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 128;  // of a tile
constexpr int kCols = 64;
constexpr int kWords = kRows / 4;  // of a column in the turned tile

/// Four E4M3 numbers as one word, the first in the lowest byte. NaN stays NaN.
__device__ __forceinline__ std::uint32_t pack4(float a, float b, float c, float d) {
  const std::uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3);
  const std::uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, __NV_E4M3);
  return low | high << 16;
}

template <bool kPlain, bool kTurn, bool kGelu>
__global__ void __launch_bounds__(kThreads)
    k_cast(const Fp8Out out, const __nv_bfloat16* x, const Absmax* absmax, std::uint32_t* saturated,
           std::int64_t rows, std::int64_t cols) {
  __shared__ alignas(16) std::uint32_t tile[kTurn ? kCols * kWords : 1];
  const float inverse_scale = inverse_scale_of(absmax->bits);
  const float scale = 1.0F / inverse_scale;
  if (blockIdx.x == 0 && threadIdx.x == 0) *out.inverse_scale = inverse_scale;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int group = lane % 8;                                             // of 8 columns
  const int word = static_cast<int>(threadIdx.x / 32) * 4 + lane / 8;     // of 4 rows
  const auto across = static_cast<unsigned>((cols + kCols - 1) / kCols);  // tiles
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.x / across) * kRows;
  const std::int64_t first_col = static_cast<std::int64_t>(blockIdx.x % across) * kCols;
  const std::int64_t row = first_row + word * 4;
  const std::int64_t col = first_col + group * 8;
  float v[4][8] = {};
  if (row < rows && col < cols) {
#pragma unroll
    for (int r = 0; r < 4; ++r) load_floats<8>(v[r], x + (row + r) * cols + col);
    int beyond = 0;
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        if (kGelu) v[r][c] = __bfloat162float(__float2bfloat16(v[r][c] * gate<__nv_bfloat16>(v[r][c])));
        v[r][c] *= scale;
        beyond += fabsf(v[r][c]) > 448.0F ? 1 : 0;
      }
    if (beyond != 0) atomicAdd(saturated, static_cast<std::uint32_t>(beyond));
    if (kPlain)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        *reinterpret_cast<uint2*>(out.numbers + (row + r) * cols + col) =
            make_uint2(pack4(v[r][0], v[r][1], v[r][2], v[r][3]), pack4(v[r][4], v[r][5], v[r][6], v[r][7]));
  }
  if constexpr (kTurn) {
#pragma unroll
    for (int c = 0; c < 8; ++c)
      tile[(group * 8 + c) * kWords + (word ^ (4 * group))] = pack4(v[0][c], v[1][c], v[2][c], v[3][c]);
    __syncthreads();
#pragma unroll
    for (int pass = 0; pass < 2; ++pass) {
      const int column = static_cast<int>(threadIdx.x) / 8 + 32 * pass;  // of the tile
      const int quad = static_cast<int>(threadIdx.x) % 8;                // of 16 rows
      const std::int64_t to_col = first_col + column;
      const std::int64_t to_row = first_row + quad * 16;
      if (to_col >= cols || to_row >= rows) continue;
      *reinterpret_cast<uint4*>(out.transposed + to_col * rows + to_row) =
          *reinterpret_cast<const uint4*>(tile + column * kWords + 4 * (quad ^ column / 8));
    }
  }
}

template <bool kGelu>
void launch_cast(const Fp8Out& out, const __nv_bfloat16* x, const Absmax* absmax, std::uint32_t* saturated,
                 std::int64_t rows, std::int64_t cols, cudaStream_t stream) {
  const unsigned grid = blocks_for(cols, kCols) * blocks_for(rows, kRows);
  if (out.numbers != nullptr && out.transposed != nullptr)
    k_cast<true, true, kGelu><<<grid, kThreads, 0, stream>>>(out, x, absmax, saturated, rows, cols);
  else if (out.transposed != nullptr)
    k_cast<false, true, kGelu><<<grid, kThreads, 0, stream>>>(out, x, absmax, saturated, rows, cols);
  else
    k_cast<true, false, kGelu><<<grid, kThreads, 0, stream>>>(out, x, absmax, saturated, rows, cols);
  ANDREA_CUDA_LAUNCHED("cast_to_fp8");
}

}  // namespace

void cast_to_fp8(const Fp8Out& out, const __nv_bfloat16* x, const Absmax* absmax, std::uint32_t* saturated,
                 std::int64_t rows, std::int64_t cols, cudaStream_t stream) {
  launch_cast<false>(out, x, absmax, saturated, rows, cols, stream);
}

void cast_gelu_to_fp8(const Fp8Out& out, const __nv_bfloat16* h, const Absmax* absmax,
                      std::uint32_t* saturated, std::int64_t rows, std::int64_t cols, cudaStream_t stream) {
  launch_cast<true>(out, h, absmax, saturated, rows, cols, stream);
}

}  // namespace andrea::cuda
