// k_attn_fwd for 16-bit types and head dims up to 64 on Hopper: see attention.cpp for the formulas, and
// attention_mma_forward.cu for the same on any GPU from sm_80 on.
// A block is one warpgroup with one tile of 64 queries of one (sequence, head), or, for wide heads, two: then
// both products Q K^T with a tile of 64 keys start at once, and the exponentials of one tile of queries are
// taken while the tensor cores work on the other. Tiles of keys and values come through shared-memory stages
// by asynchronous copies, up to the diagonal and no further. The blocks with the most work start first. Sums
// run in tile order: deterministic.
#include "kernels/cuda/absmax.cuh"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/wgmma.cuh"

namespace andrea::cuda {
namespace {

constexpr int kThreads = 128;
constexpr bool kVectors = true;  // heads are whole chunks of 16 bytes
// Tiles in flight and in use: wide ones leave room for one block more with two.
template <int kWidth>
constexpr int kStages = kWidth == 32 ? 3 : 2;
constexpr int kTile = 64;  // queries of a tile, keys of a tile

// Tiles of queries of a block, and blocks a multiprocessor should hold.
template <int kWidth>
constexpr int kTilesOf = kWidth == 32 ? 1 : 2;
template <int kWidth>
constexpr int kBlocks = kWidth == 32 ? 5 : 3;

#ifdef ANDREA_HOPPER_CODE
/// The running softmax of a tile of queries: a lane has elements of rows g and g + 8.
template <int kWidth>
struct QueryTile {
  float acc[kWidth / 8][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {};  // of this lane's columns

  /// Scores to weights, packed as the A operand of the product with V.
  template <typename T>
  __device__ __forceinline__ void weigh(std::uint32_t (&weights)[4][4], float (&s)[8][4], float scale2) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float top = max[side];
#pragma unroll
      for (int n = 0; n < 8; ++n) top = fmaxf(top, fmaxf(s[n][2 * side], s[n][2 * side + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffU, top, 2));
      // Key 0 is visible to every row, so the maximum is finite from the first tile on.
      const float shrink = exp2_fast((max[side] - top) * scale2);
      const float offset = top * scale2;
      float part = 0.0F;
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 2 * side; i < 2 * side + 2; ++i) {
          s[n][i] = exp2_fast(fmaf(s[n][i], scale2, -offset));
          part += s[n][i];
        }
      max[side] = top;
      sum[side] = sum[side] * shrink + part;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        acc[n][2 * side] *= shrink;
        acc[n][2 * side + 1] *= shrink;
      }
    }
    pack_weights<T>(weights, s);
  }
};
#endif

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads, kBlocks<kWidth>)
    k_forward(T* out, float* lse, const T* qkv, int length, int heads, int hd, float scale, Absmax* absmax) {
#ifdef ANDREA_HOPPER_CODE
  constexpr int kOwnTiles = kTilesOf<kWidth>;
  constexpr int kLast = kOwnTiles - 1;
  constexpr int kOwn = kOwnTiles * kTile;
  extern __shared__ __align__(1024) unsigned char memory[];
  T* const q_tile = reinterpret_cast<T*>(memory);
  T* const k_tiles = q_tile + kOwn * kWidth;
  T* const v_tiles = k_tiles + kStages<kWidth> * kTile * kWidth;
  const int first = (static_cast<int>(gridDim.z) - 1 - static_cast<int>(blockIdx.z)) * kOwn;
  const std::int64_t b = blockIdx.y;
  const std::int64_t h = blockIdx.x;
  const std::int64_t d = static_cast<std::int64_t>(heads) * hd;
  const T* const q = qkv + b * length * 3 * d + h * hd;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int row = first + static_cast<int>(threadIdx.x / 32) * 16 + lane / 4;  // and + 8, and + 64

  const int tiles = (min(first + kOwn, length) - 1) / kTile + 1;
  using Loader = TileLoader<T, kWidth, kThreads>;
  const Loader q_loader(q, 3 * d, length, hd, kVectors);
  const Loader k_loader(q + d, 3 * d, length, hd, kVectors);
  const Loader v_loader(q + 2 * d, 3 * d, length, hd, kVectors);
  const auto stream_in = [&](int tile) {
    if (tile < tiles) {
      const int to = tile % kStages<kWidth> * kTile * kWidth;
      k_loader.template load<kTile>(k_tiles + to, tile * kTile);
      v_loader.template load<kTile>(v_tiles + to, tile * kTile);
    }
    commit_copies();
  };
  q_loader.template load<kOwn>(q_tile, first);
#pragma unroll
  for (int tile = 0; tile < kStages<kWidth> - 1; ++tile) stream_in(tile);

  QueryTile<kWidth> own[kOwnTiles];
  const std::uint32_t q_base = shared_address(q_tile);
  const float scale2 = scale * kLog2E;
  const auto mask = [&](float (&s)[8][4], int key, int query) {
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (key + 8 * n + (i & 1) > query + 8 * (i >> 1)) s[n][i] = -INFINITY;
  };

  for (int tile = 0; tile < tiles; ++tile) {
    wait_copies<kStages<kWidth> - 2>();
    publish_tiles();
    __syncthreads();
    stream_in(tile + kStages<kWidth> - 1);
    const int stage = tile % kStages<kWidth> * kTile * kWidth;
    const std::uint32_t k_base = shared_address(k_tiles + stage);
    const std::uint32_t v_base = shared_address(v_tiles + stage);
    const int key = tile * kTile + lane % 4 * 2;  // of s[0][0]
    std::uint32_t weights[kOwnTiles][4][4];
    float s[kOwnTiles][8][4];
    if (kOwnTiles == 1 || tile * kTile >= first + kTile) {  // the last tile of queries, alone
      begin_products();
      start_scores<T, kWidth>(s[kLast], q_base + kLast * kTile * kWidth * 2, k_base);
      wait_products<0>();
      settled(s[kLast]);
      if (tile == tiles - 1) mask(s[kLast], key, row + kLast * kTile);  // the diagonal
    } else {
      begin_products();
      start_scores<T, kWidth>(s[0], q_base, k_base);
      start_scores<T, kWidth>(s[kLast], q_base + kLast * kTile * kWidth * 2, k_base);
      wait_products<1>();
      settled(s[0]);
      if (tile * kTile == first) mask(s[0], key, row);
      own[0].template weigh<T>(weights[0], s[0], scale2);
      begin_products();
      start_sums<T, kWidth>(own[0].acc, weights[0], v_base);
      wait_products<1>();
      settled(s[kLast]);
    }
    own[kLast].template weigh<T>(weights[kLast], s[kLast], scale2);
    begin_products();
    start_sums<T, kWidth>(own[kLast].acc, weights[kLast], v_base);
    wait_products<0>();
    settled(own[0].acc);
    settled(own[kLast].acc);
  }

  Largest<T> largest{absmax};
#pragma unroll
  for (int m = 0; m < kOwnTiles; ++m)
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float sum = own[m].sum[side];
      sum += __shfl_xor_sync(0xffffffffU, sum, 1);
      sum += __shfl_xor_sync(0xffffffffU, sum, 2);
      const int t = row + kTile * m + 8 * side;
      if (t >= length) continue;
      const float inverse = 1.0F / sum;
      if (lane % 4 == 0) lse[(b * heads + h) * length + t] = own[m].max[side] * scale + logf(sum);
      T* const to = out + (b * length + t) * d + h * hd;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        const float x = own[m].acc[n][2 * side] * inverse;
        const float y = own[m].acc[n][2 * side + 1] * inverse;
        largest.see(x, y);
        store_pair<T>(to, 8 * n + lane % 4 * 2, hd, x, y, kVectors);
      }
    }
  largest.publish();
#endif
}

template <typename T, int kWidth>
void launch(T* out, float* lse, const T* qkv, const AttentionShape& shape, Absmax* absmax,
            cudaStream_t stream) {
  constexpr int kOwn = kTilesOf<kWidth> * kTile;
  constexpr int kBytes = (kOwn + 2 * kStages<kWidth> * kTile) * kWidth * static_cast<int>(sizeof(T));
  ANDREA_CUDA_CHECK(
      cudaFuncSetAttribute(k_forward<T, kWidth>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  const dim3 grid(static_cast<unsigned>(shape.H), static_cast<unsigned>(shape.B), blocks_for(shape.T, kOwn));
  k_forward<T, kWidth><<<grid, kThreads, kBytes, stream>>>(
      out, lse, qkv, static_cast<int>(shape.T), static_cast<int>(shape.H), static_cast<int>(shape.hd),
      1.0F / sqrtf(static_cast<float>(shape.hd)), absmax);
  ANDREA_CUDA_LAUNCHED("k_attn_fwd (Hopper)");
}

}  // namespace

template <typename T>
void attention_forward_hopper(T* out, float* lse, const T* qkv, const AttentionShape& shape, Absmax* absmax,
                              cudaStream_t stream) {
  if (shape.hd <= 32)
    launch<T, 32>(out, lse, qkv, shape, absmax, stream);
  else
    launch<T, 64>(out, lse, qkv, shape, absmax, stream);
}

template void attention_forward_hopper<__half>(__half*, float*, const __half*, const AttentionShape&, Absmax*,
                                               cudaStream_t);
template void attention_forward_hopper<__nv_bfloat16>(__nv_bfloat16*, float*, const __nv_bfloat16*,
                                                      const AttentionShape&, Absmax*, cudaStream_t);

}  // namespace andrea::cuda
