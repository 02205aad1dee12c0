// k_attn_fwd for 16-bit types: see attention.cpp for the formulas.
// A block of 4 warps takes 64 or 128 queries of one (sequence, head), a warp 16 or 32 of them: with 32, every
// fragment of K and V that is read from shared memory serves two products, which narrow heads need most.
// Tiles of keys and values stream through three shared-memory stages, up to the diagonal and no further. Q,
// S, P and out stay in registers; exponentials are exp2 with log2(e) / sqrt(hd) folded into one multiply-add.
// Blocks with the most work start first.
#include "kernels/cuda/absmax.cuh"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/check.h"

namespace andrea::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kStages = 3;  // tiles in flight and in use

// 16-row tiles of queries a warp owns, keys of a streamed tile, blocks a multiprocessor should hold.
template <int kWidth>
struct Config {
  static constexpr int kTiles = kWidth == 64 ? 2 : 1;
  static constexpr int kKeys = kWidth == 128 ? 32 : 64;
  static constexpr int kBlocks = kWidth == 32 ? 5 : 2;
  static constexpr int kQueries = kWarps * 16 * kTiles;
};

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads, Config<kWidth>::kBlocks)
    k_forward(T* out, float* lse, const T* qkv, int length, int heads, int hd, float scale, bool vectors,
              Absmax* absmax) {
  constexpr int kTiles = Config<kWidth>::kTiles;
  constexpr int kKeys = Config<kWidth>::kKeys;
  constexpr int kQueries = Config<kWidth>::kQueries;
  extern __shared__ __align__(128) unsigned char memory[];
  T* const q_tile = reinterpret_cast<T*>(memory);
  T* const k_tiles = q_tile + kQueries * kWidth;
  T* const v_tiles = k_tiles + kStages * kKeys * kWidth;
  const int q_first = (static_cast<int>(gridDim.z) - 1 - static_cast<int>(blockIdx.z)) * kQueries;
  const std::int64_t b = blockIdx.y;
  const std::int64_t h = blockIdx.x;
  const std::int64_t d = static_cast<std::int64_t>(heads) * hd;
  const T* const q = qkv + b * length * 3 * d + h * hd;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp_first = q_first + static_cast<int>(threadIdx.x / 32) * 16 * kTiles;
  const int row = warp_first + lane / 4;  // and + 8, and + 16 for each further tile

  const int last = min(q_first + kQueries, length) - 1;
  const int tiles = last / kKeys + 1;
  using Loader = TileLoader<T, kWidth, kThreads>;
  const Loader q_loader(q, 3 * d, length, hd, vectors);
  const Loader k_loader(q + d, 3 * d, length, hd, vectors);
  const Loader v_loader(q + 2 * d, 3 * d, length, hd, vectors);
  const auto stream_in = [&](int tile) {
    if (tile < tiles) {
      const int to = tile % kStages * kKeys * kWidth;
      k_loader.template load<kKeys>(k_tiles + to, tile * kKeys);
      v_loader.template load<kKeys>(v_tiles + to, tile * kKeys);
    }
    commit_copies();
  };
  q_loader.template load<kQueries>(q_tile, q_first);
#pragma unroll
  for (int tile = 0; tile < kStages - 1; ++tile) stream_in(tile);

  constexpr int kSteps = kWidth / 16;
  std::uint32_t q_frag[kTiles][kSteps][4];
  float acc[kTiles][kWidth / 8][4] = {};
  float row_max[kTiles][2];
  float row_sum[kTiles][2] = {};  // of this lane's columns
#pragma unroll
  for (int m = 0; m < kTiles; ++m) row_max[m][0] = row_max[m][1] = -INFINITY;
  const float scale2 = scale * kLog2E;

  for (int tile = 0; tile < tiles; ++tile) {
    wait_copies<kStages - 2>();
    __syncthreads();
    if (tile == 0) {
      const std::uint32_t base = shared_address(q_tile);
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int k = 0; k < kSteps; ++k)
          Tile<kWidth>::load_a(q_frag[m][k], base, warp_first - q_first + 16 * m, k, lane);
    }
    stream_in(tile + kStages - 1);
    const int stage = tile % kStages;
    if (tile * kKeys > warp_first + 16 * kTiles - 1) continue;  // nothing visible to this warp
    const std::uint32_t k_base = shared_address(k_tiles + stage * kKeys * kWidth);
    const std::uint32_t v_base = shared_address(v_tiles + stage * kKeys * kWidth);

    float s[kTiles][kKeys / 8][4] = {};
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        std::uint32_t frag[4];
        Tile<kWidth>::load_b(frag, k_base, n * 16, k, lane);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          mma<T>(s[m][2 * n], q_frag[m][k], frag[0], frag[1]);
          mma<T>(s[m][2 * n + 1], q_frag[m][k], frag[2], frag[3]);
        }
      }
    if (tile * kKeys + kKeys - 1 > warp_first) {
      const int key = tile * kKeys + lane % 4 * 2;  // of s[m][n][0]: + 8 n
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (key + 8 * n + (i & 1) > row + 16 * m + (i >> 1) * 8) s[m][n][i] = -INFINITY;
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        float max = row_max[m][side];
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n) max = fmaxf(max, fmaxf(s[m][n][2 * side], s[m][n][2 * side + 1]));
        max = fmaxf(max, __shfl_xor_sync(0xffffffffU, max, 1));
        max = fmaxf(max, __shfl_xor_sync(0xffffffffU, max, 2));
        // Key 0 is visible to every row, so the maximum is finite from the first tile on.
        const float shrink = exp2_fast((row_max[m][side] - max) * scale2);
        const float offset = max * scale2;
        float sum = 0.0F;
#pragma unroll
        for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
          for (int i = 2 * side; i < 2 * side + 2; ++i) {
            s[m][n][i] = exp2_fast(fmaf(s[m][n][i], scale2, -offset));
            sum += s[m][n][i];
          }
        row_max[m][side] = max;
        row_sum[m][side] = row_sum[m][side] * shrink + sum;
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n) {
          acc[m][n][2 * side] *= shrink;
          acc[m][n][2 * side + 1] *= shrink;
        }
      }
#pragma unroll
    for (int k = 0; k < kKeys / 16; ++k) {
      std::uint32_t p[kTiles][4];
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        p[m][0] = pack<T>(s[m][2 * k][0], s[m][2 * k][1]);
        p[m][1] = pack<T>(s[m][2 * k][2], s[m][2 * k][3]);
        p[m][2] = pack<T>(s[m][2 * k + 1][0], s[m][2 * k + 1][1]);
        p[m][3] = pack<T>(s[m][2 * k + 1][2], s[m][2 * k + 1][3]);
      }
#pragma unroll
      for (int n = 0; n < kWidth / 16; ++n) {
        std::uint32_t frag[4];
        Tile<kWidth>::load_b_rows(frag, v_base, k, n, lane);
#pragma unroll
        for (int m = 0; m < kTiles; ++m) {
          mma<T>(acc[m][2 * n], p[m], frag[0], frag[1]);
          mma<T>(acc[m][2 * n + 1], p[m], frag[2], frag[3]);
        }
      }
    }
  }

  Largest<T> largest{absmax};
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float sum = row_sum[m][side];
      sum += __shfl_xor_sync(0xffffffffU, sum, 1);
      sum += __shfl_xor_sync(0xffffffffU, sum, 2);
      const int t = row + 16 * m + 8 * side;
      if (t >= length) continue;
      const float inverse = 1.0F / sum;
      if (lane % 4 == 0) lse[(b * heads + h) * length + t] = row_max[m][side] * scale + logf(sum);
      T* const to = out + (b * length + t) * d + h * hd;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        const float x = acc[m][n][2 * side] * inverse;
        const float y = acc[m][n][2 * side + 1] * inverse;
        largest.see(x, y);
        store_pair<T>(to, 8 * n + lane % 4 * 2, hd, x, y, vectors);
      }
    }
  largest.publish();
}

template <typename T, int kWidth>
void launch(T* out, float* lse, const T* qkv, const AttentionShape& shape, bool vectors, Absmax* absmax,
            cudaStream_t stream) {
  constexpr int kQueries = Config<kWidth>::kQueries;
  constexpr int kBytes =
      (kQueries + 2 * kStages * Config<kWidth>::kKeys) * kWidth * static_cast<int>(sizeof(T));
  if (kBytes > 48 << 10)
    ANDREA_CUDA_CHECK(
        cudaFuncSetAttribute(k_forward<T, kWidth>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  const dim3 grid(static_cast<unsigned>(shape.H), static_cast<unsigned>(shape.B),
                  blocks_for(shape.T, kQueries));
  k_forward<T, kWidth><<<grid, kThreads, kBytes, stream>>>(
      out, lse, qkv, static_cast<int>(shape.T), static_cast<int>(shape.H), static_cast<int>(shape.hd),
      1.0F / sqrtf(static_cast<float>(shape.hd)), vectors, absmax);
  ANDREA_CUDA_LAUNCHED("k_attn_fwd");
}

}  // namespace

template <typename T>
void attention_forward(T* out, float* lse, const T* qkv, const AttentionShape& shape, Absmax* absmax,
                       cudaStream_t stream) {
  const bool vectors = shape.hd % 8 == 0 && aligned16(out, qkv);
  if (shape.hd <= 32)
    launch<T, 32>(out, lse, qkv, shape, vectors, absmax, stream);
  else if (shape.hd <= 64)
    launch<T, 64>(out, lse, qkv, shape, vectors, absmax, stream);
  else
    launch<T, 128>(out, lse, qkv, shape, vectors, absmax, stream);
}

template void attention_forward<__half>(__half*, float*, const __half*, const AttentionShape&, Absmax*,
                                        cudaStream_t);
template void attention_forward<__nv_bfloat16>(__nv_bfloat16*, float*, const __nv_bfloat16*,
                                               const AttentionShape&, Absmax*, cudaStream_t);

}  // namespace andrea::cuda
