// k_attn_bwd for 16-bit types and head dims up to 64 on Hopper: see attention.cpp for the formulas, and
// attention_mma_backward.cu for the same on any GPU from sm_80 on.
// k_queries: a block, one warpgroup, owns 64 queries, finds delta for them and goes over tiles of keys: dQ.
// k_keys:    a block owns 64 keys and goes over tiles of queries, with S^T and dP^T, so that P^T and dS^T are
//            the A operands of dV and dK.
// S and dP are started together. k_queries takes the exponentials of S while dP is computed; k_keys, which
// has twice the sums in its registers, waits for both and rounds P and dS element by element. Tiles come
// through shared-memory stages; several blocks a multiprocessor fill each other's waits. Each gradient is
// added by one warpgroup, tile after tile: deterministic.
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
constexpr int kTile = 64;  // rows of every tile

// Blocks a multiprocessor should hold: what registers allow without spilling.
constexpr int kQueryBlocks = 4;
template <int kWidth>
constexpr int kKeyBlocks = kWidth == 32 ? 4 : 3;

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads, kQueryBlocks)
    k_queries(T* dqkv, float* delta, const T* dout, const T* out, const T* qkv, const float* lse, int length,
              int heads, int hd, float scale, Absmax* absmax) {
#ifdef ANDREA_HOPPER_CODE
  extern __shared__ __align__(1024) unsigned char memory[];
  T* const q_tile = reinterpret_cast<T*>(memory);
  T* const do_tile = q_tile + kTile * kWidth;
  T* const k_tiles = do_tile + kTile * kWidth;
  T* const v_tiles = k_tiles + kStages<kWidth> * kTile * kWidth;
  float* const deltas = reinterpret_cast<float*>(v_tiles + kStages<kWidth> * kTile * kWidth);
  const int first = (static_cast<int>(gridDim.z) - 1 - static_cast<int>(blockIdx.z)) * kTile;
  const std::int64_t b = blockIdx.y;
  const std::int64_t h = blockIdx.x;
  const std::int64_t d = static_cast<std::int64_t>(heads) * hd;
  const T* const q = qkv + b * length * 3 * d + h * hd;
  const std::int64_t place = b * length * d + h * hd;  // of the head in out and dout
  const std::int64_t stats = (b * heads + h) * length;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int row = first + static_cast<int>(threadIdx.x / 32) * 16 + lane / 4;  // and + 8

  const int tiles = first / kTile + 1;
  using Loader = TileLoader<T, kWidth, kThreads>;
  const Loader q_loader(q, 3 * d, length, hd, kVectors);
  const Loader do_loader(dout + place, d, length, hd, kVectors);
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
  q_loader.template load<kTile>(q_tile, first);
  do_loader.template load<kTile>(do_tile, first);
#pragma unroll
  for (int tile = 0; tile < kStages<kWidth> - 1; ++tile) stream_in(tile);

  {  // two threads a row
    const int part = static_cast<int>(threadIdx.x) % 2;
    const int own = static_cast<int>(threadIdx.x) / 2;
    float sum = 0.0F;
    if (first + own < length) {
      const std::int64_t at = place + (first + own) * d;
      for (int c = part * 8; c < hd; c += 16) {
        float x[8];
        float y[8];
        load_floats<8>(x, dout + at + c);
        load_floats<8>(y, out + at + c);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += x[i] * y[i];
      }
    }
    sum += __shfl_xor_sync(0xffffffffU, sum, 1);
    if (part == 0) {
      deltas[own] = sum;
      if (first + own < length) delta[stats + first + own] = sum;
    }
  }

  float acc[kWidth / 8][4] = {};
  float row_lse2[2] = {};
  float row_delta[2] = {};
  const float scale2 = scale * kLog2E;
  const std::uint32_t q_base = shared_address(q_tile);
  const std::uint32_t do_base = shared_address(do_tile);
  for (int tile = 0; tile < tiles; ++tile) {
    wait_copies<kStages<kWidth> - 2>();
    publish_tiles();
    __syncthreads();
    if (tile == 0) {
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        const int t = row + 8 * side;
        row_delta[side] = deltas[t - first];
        row_lse2[side] = t < length ? lse[stats + t] * kLog2E : 0.0F;
      }
    }
    stream_in(tile + kStages<kWidth> - 1);
    const int stage = tile % kStages<kWidth> * kTile * kWidth;
    const std::uint32_t k_base = shared_address(k_tiles + stage);
    float s[8][4];
    float dp[8][4];
    begin_products();
    start_scores<T, kWidth>(s, q_base, k_base);
    start_scores<T, kWidth>(dp, do_base, shared_address(v_tiles + stage));
    wait_products<1>();
    settled(s);
    if (tile == tiles - 1) {  // the diagonal
      const int key = tile * kTile + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (key + 8 * n + (i & 1) > row + 8 * (i >> 1)) s[n][i] = -INFINITY;
    }
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] = exp2_fast(fmaf(s[n][i], scale2, -row_lse2[i >> 1]));
    wait_products<0>();
    settled(dp);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] *= dp[n][i] - row_delta[i >> 1];
    std::uint32_t weights[4][4];
    pack_weights<T>(weights, s);
    begin_products();
    start_sums<T, kWidth>(acc, weights, k_base);
    wait_products<0>();
    settled(acc);
  }
  Largest<T> largest{absmax};
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int t = row + 8 * side;
    if (t >= length) continue;
    T* const to = dqkv + (b * length + t) * 3 * d + h * hd;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      const float x = acc[n][2 * side] * scale;
      const float y = acc[n][2 * side + 1] * scale;
      largest.see(x, y);
      store_pair<T>(to, 8 * n + lane % 4 * 2, hd, x, y, kVectors);
    }
  }
  largest.publish();
#endif
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads, kKeyBlocks<kWidth>)
    k_keys(T* dqkv, const T* dout, const T* qkv, const float* lse, const float* delta, int length, int heads,
           int hd, float scale, Absmax* absmax) {
#ifdef ANDREA_HOPPER_CODE
  extern __shared__ __align__(1024) unsigned char memory[];
  T* const k_tile = reinterpret_cast<T*>(memory);
  T* const v_tile = k_tile + kTile * kWidth;
  T* const q_tiles = v_tile + kTile * kWidth;
  T* const do_tiles = q_tiles + kStages<kWidth> * kTile * kWidth;
  float* const stat_tiles =
      reinterpret_cast<float*>(do_tiles + kStages<kWidth> * kTile * kWidth);  // lse, delta
  const int first = static_cast<int>(blockIdx.z) * kTile;  // early keys are seen by most queries
  const std::int64_t b = blockIdx.y;
  const std::int64_t h = blockIdx.x;
  const std::int64_t d = static_cast<std::int64_t>(heads) * hd;
  const T* const q = qkv + b * length * 3 * d + h * hd;
  const T* const dout_head = dout + b * length * d + h * hd;
  const std::int64_t stats = (b * heads + h) * length;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int row = first + static_cast<int>(threadIdx.x / 32) * 16 + lane / 4;  // and + 8

  const int begin = first / kTile;
  const int end = (length + kTile - 1) / kTile;
  using Loader = TileLoader<T, kWidth, kThreads>;
  const Loader q_loader(q, 3 * d, length, hd, kVectors);
  const Loader do_loader(dout_head, d, length, hd, kVectors);
  const Loader k_loader(q + d, 3 * d, length, hd, kVectors);
  const Loader v_loader(q + 2 * d, 3 * d, length, hd, kVectors);
  const auto stream_in = [&](int tile) {
    if (tile < end) {
      const int stage = tile % kStages<kWidth>;
      q_loader.template load<kTile>(q_tiles + stage * kTile * kWidth, tile * kTile);
      do_loader.template load<kTile>(do_tiles + stage * kTile * kWidth, tile * kTile);
      const int at = tile * kTile + static_cast<int>(threadIdx.x) % kTile;
      const bool inside = at < length;
      copy_async4(shared_address(stat_tiles + stage * 2 * kTile + threadIdx.x),
                  (threadIdx.x < kTile ? lse : delta) + stats + (inside ? at : 0), inside);
    }
    commit_copies();
  };
  k_loader.template load<kTile>(k_tile, first);
  v_loader.template load<kTile>(v_tile, first);
#pragma unroll
  for (int tile = 0; tile < kStages<kWidth> - 1; ++tile) stream_in(begin + tile);

  float dk[kWidth / 8][4] = {};
  float dv[kWidth / 8][4] = {};
  const float scale2 = scale * kLog2E;
  const std::uint32_t k_base = shared_address(k_tile);
  const std::uint32_t v_base = shared_address(v_tile);
  for (int tile = begin; tile < end; ++tile) {
    wait_copies<kStages<kWidth> - 2>();
    publish_tiles();
    __syncthreads();
    stream_in(tile + kStages<kWidth> - 1);
    const int stage = tile % kStages<kWidth>;
    const std::uint32_t q_base = shared_address(q_tiles + stage * kTile * kWidth);
    const std::uint32_t do_base = shared_address(do_tiles + stage * kTile * kWidth);
    const float* const lses = stat_tiles + stage * 2 * kTile + lane % 4 * 2;
    float s[8][4];
    float dp[8][4];
    begin_products();
    start_scores<T, kWidth>(s, k_base, q_base);
    start_scores<T, kWidth>(dp, v_base, do_base);
    wait_products<0>();
    settled(s);
    settled(dp);
    if (tile == begin) {  // the diagonal
      const int query = tile * kTile + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (row + 8 * (i >> 1) > query + 8 * n + (i & 1)) s[n][i] = -INFINITY;
    }
    std::uint32_t p_weights[4][4];
    std::uint32_t ds_weights[4][4];
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 l = *reinterpret_cast<const float2*>(lses + 8 * n);
      const float2 del = *reinterpret_cast<const float2*>(lses + kTile + 8 * n);
      const float lse2[2] = {l.x * kLog2E, l.y * kLog2E};
      const float column_delta[2] = {del.x, del.y};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[n][i] = exp2_fast(fmaf(s[n][i], scale2, -lse2[i & 1]));
        dp[n][i] = s[n][i] * (dp[n][i] - column_delta[i & 1]);
      }
      // Rounded at once, as the A operands of dV and dK: see pack_weights.
      p_weights[n / 2][n % 2 * 2] = pack<T>(s[n][0], s[n][1]);
      p_weights[n / 2][n % 2 * 2 + 1] = pack<T>(s[n][2], s[n][3]);
      ds_weights[n / 2][n % 2 * 2] = pack<T>(dp[n][0], dp[n][1]);
      ds_weights[n / 2][n % 2 * 2 + 1] = pack<T>(dp[n][2], dp[n][3]);
    }
    begin_products();
    start_sums<T, kWidth>(dv, p_weights, do_base);
    start_sums<T, kWidth>(dk, ds_weights, q_base);
    wait_products<0>();
    settled(dv);
    settled(dk);
  }
  Largest<T> largest{absmax};
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int t = row + 8 * side;
    if (t >= length) continue;
    T* const to = dqkv + (b * length + t) * 3 * d + d + h * hd;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      const int column = 8 * n + lane % 4 * 2;
      const float x = dk[n][2 * side] * scale;
      const float y = dk[n][2 * side + 1] * scale;
      largest.see(x, y);
      largest.see(dv[n][2 * side], dv[n][2 * side + 1]);
      store_pair<T>(to, column, hd, x, y, kVectors);
      store_pair<T>(to + d, column, hd, dv[n][2 * side], dv[n][2 * side + 1], kVectors);
    }
  }
  largest.publish();
#endif
}

template <typename T, int kWidth>
void launch(T* dqkv, const T* dout, const T* out, const T* qkv, const float* lse, float* delta,
            const AttentionShape& shape, Absmax* absmax, cudaStream_t stream) {
  constexpr int kTileBytes = kTile * kWidth * static_cast<int>(sizeof(T));
  constexpr int kStatBytes = kTile * static_cast<int>(sizeof(float));
  constexpr int kQueryBytes = (2 + 2 * kStages<kWidth>)*kTileBytes + kStatBytes;
  constexpr int kKeyBytes = (2 + 2 * kStages<kWidth>)*kTileBytes + 2 * kStages<kWidth> * kStatBytes;
  ANDREA_CUDA_CHECK(
      cudaFuncSetAttribute(k_queries<T, kWidth>, cudaFuncAttributeMaxDynamicSharedMemorySize, kQueryBytes));
  ANDREA_CUDA_CHECK(
      cudaFuncSetAttribute(k_keys<T, kWidth>, cudaFuncAttributeMaxDynamicSharedMemorySize, kKeyBytes));
  const dim3 grid(static_cast<unsigned>(shape.H), static_cast<unsigned>(shape.B), blocks_for(shape.T, kTile));
  const auto length = static_cast<int>(shape.T);
  const auto heads = static_cast<int>(shape.H);
  const auto hd = static_cast<int>(shape.hd);
  const float scale = 1.0F / sqrtf(static_cast<float>(hd));
  k_queries<T, kWidth><<<grid, kThreads, kQueryBytes, stream>>>(dqkv, delta, dout, out, qkv, lse, length,
                                                                heads, hd, scale, absmax);
  ANDREA_CUDA_LAUNCHED("k_attn_bwd (queries, Hopper)");
  k_keys<T, kWidth>
      <<<grid, kThreads, kKeyBytes, stream>>>(dqkv, dout, qkv, lse, delta, length, heads, hd, scale, absmax);
  ANDREA_CUDA_LAUNCHED("k_attn_bwd (keys, Hopper)");
}

}  // namespace

template <typename T>
void attention_backward_hopper(T* dqkv, const T* dout, const T* out, const T* qkv, const float* lse,
                               float* delta, const AttentionShape& shape, Absmax* absmax,
                               cudaStream_t stream) {
  if (shape.hd <= 32)
    launch<T, 32>(dqkv, dout, out, qkv, lse, delta, shape, absmax, stream);
  else
    launch<T, 64>(dqkv, dout, out, qkv, lse, delta, shape, absmax, stream);
}

template void attention_backward_hopper<__half>(__half*, const __half*, const __half*, const __half*,
                                                const float*, float*, const AttentionShape&, Absmax*,
                                                cudaStream_t);
template void attention_backward_hopper<__nv_bfloat16>(__nv_bfloat16*, const __nv_bfloat16*,
                                                       const __nv_bfloat16*, const __nv_bfloat16*,
                                                       const float*, float*, const AttentionShape&, Absmax*,
                                                       cudaStream_t);

}  // namespace andrea::cuda
