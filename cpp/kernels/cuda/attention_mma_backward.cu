// k_attn_bwd for 16-bit types: see attention.cpp for the formulas.
// k_queries: a block owns 64 or 128 queries, finds delta for them and goes over tiles of keys: dQ.
// k_keys:    a block owns 64 or 128 keys and goes over tiles of queries, computing S^T and dP^T so that P^T
// and
//            dS^T come out as the A operands of dV and dK.
// A warp owns 16 or 32 rows (32 for narrow heads: each fragment of a streamed tile then serves two products).
// S, dP and the gradients stay in registers, the streamed tiles go through three shared-memory stages. Each
// gradient is added by one warp, tile after tile: deterministic.
#include "kernels/cuda/absmax.cuh"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/check.h"

namespace andrea::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kStages = 3;  // tiles in flight and in use

// 16-row tiles a warp owns, rows of a streamed tile, blocks a multiprocessor should hold: what fits into
// registers without spilling.
template <int kWidth>
struct QueryConfig {
  static constexpr int kTiles = kWidth == 32 ? 2 : 1;
  static constexpr int kStream = 32;
  static constexpr int kBlocks = kWidth == 32 ? 3 : kWidth == 64 ? 4 : 2;
  static constexpr int kOwn = kWarps * 16 * kTiles;
};
template <int kWidth>
struct KeyConfig {
  static constexpr int kTiles = kWidth == 32 ? 2 : 1;
  static constexpr int kStream = 32;
  static constexpr int kBlocks = kWidth == 32 ? 2 : kWidth == 64 ? 3 : 2;
  static constexpr int kOwn = kWarps * 16 * kTiles;
};

/// Fragments of a tile's 16 rows: kept in registers for narrow heads, read from shared memory each time else.
template <int kWidth>
struct Rows {
  static constexpr bool kKept = kWidth <= 64;
  std::uint32_t kept[kKept ? kWidth / 16 : 1][4];
  std::uint32_t base;
  int row;
  int lane;
  __device__ __forceinline__ void load(std::uint32_t base_, int row_, int lane_) {
    base = base_;
    row = row_;
    lane = lane_;
    if constexpr (kKept) {
#pragma unroll
      for (int k = 0; k < kWidth / 16; ++k) Tile<kWidth>::load_a(kept[k], base, row, k, lane);
    }
  }
  __device__ __forceinline__ void get(std::uint32_t (&a)[4], int k) const {
    if constexpr (kKept) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = kept[k][i];
    } else {
      Tile<kWidth>::load_a(a, base, row, k, lane);
    }
  }
};

/// c[m] [16, kCols] = rows[m] tile^T
template <typename T, int kWidth, int kCols, int kTiles>
__device__ __forceinline__ void product_with_transposed(float (&c)[kTiles][kCols / 8][4],
                                                        const Rows<kWidth> (&rows)[kTiles],
                                                        std::uint32_t tile, int lane) {
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k) {
    std::uint32_t a[kTiles][4];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) rows[m].get(a[m], k);
#pragma unroll
    for (int n = 0; n < kCols / 16; ++n) {
      std::uint32_t b[4];
      Tile<kWidth>::load_b(b, tile, n * 16, k, lane);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        mma<T>(c[m][2 * n], a[m], b[0], b[1]);
        mma<T>(c[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

/// acc[m] [16, kWidth] += weights[m] [16, kCols], rounded to T, times tile [kCols, kWidth]
template <typename T, int kWidth, int kCols, int kTiles>
__device__ __forceinline__ void accumulate(float (&acc)[kTiles][kWidth / 8][4],
                                           const float (&weights)[kTiles][kCols / 8][4], std::uint32_t tile,
                                           int lane) {
#pragma unroll
  for (int k = 0; k < kCols / 16; ++k) {
    std::uint32_t a[kTiles][4];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      a[m][0] = pack<T>(weights[m][2 * k][0], weights[m][2 * k][1]);
      a[m][1] = pack<T>(weights[m][2 * k][2], weights[m][2 * k][3]);
      a[m][2] = pack<T>(weights[m][2 * k + 1][0], weights[m][2 * k + 1][1]);
      a[m][3] = pack<T>(weights[m][2 * k + 1][2], weights[m][2 * k + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < kWidth / 16; ++n) {
      std::uint32_t b[4];
      Tile<kWidth>::load_b_rows(b, tile, k, n, lane);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        mma<T>(acc[m][2 * n], a[m], b[0], b[1]);
        mma<T>(acc[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads, QueryConfig<kWidth>::kBlocks)
    k_queries(T* dqkv, float* delta, const T* dout, const T* out, const T* qkv, const float* lse, int length,
              int heads, int hd, float scale, bool vectors, Absmax* absmax) {
  constexpr int kTiles = QueryConfig<kWidth>::kTiles;
  constexpr int kStream = QueryConfig<kWidth>::kStream;
  constexpr int kOwn = QueryConfig<kWidth>::kOwn;
  extern __shared__ __align__(128) unsigned char memory[];
  T* const q_tile = reinterpret_cast<T*>(memory);
  T* const do_tile = q_tile + kOwn * kWidth;
  T* const k_tiles = do_tile + kOwn * kWidth;
  T* const v_tiles = k_tiles + kStages * kStream * kWidth;
  __shared__ float deltas[kOwn];
  const int first = (static_cast<int>(gridDim.z) - 1 - static_cast<int>(blockIdx.z)) * kOwn;
  const std::int64_t b = blockIdx.y;
  const std::int64_t h = blockIdx.x;
  const std::int64_t d = static_cast<std::int64_t>(heads) * hd;
  const T* const q = qkv + b * length * 3 * d + h * hd;
  const std::int64_t place = b * length * d + h * hd;  // of the head in out and dout
  const std::int64_t stats = (b * heads + h) * length;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);

  const int last = min(first + kOwn, length) - 1;
  const int tiles = last / kStream + 1;
  using Loader = TileLoader<T, kWidth, kThreads>;
  const Loader q_loader(q, 3 * d, length, hd, vectors);
  const Loader do_loader(dout + place, d, length, hd, vectors);
  const Loader k_loader(q + d, 3 * d, length, hd, vectors);
  const Loader v_loader(q + 2 * d, 3 * d, length, hd, vectors);
  const auto stream_in = [&](int tile) {
    if (tile < tiles) {
      const int to = tile % kStages * kStream * kWidth;
      k_loader.template load<kStream>(k_tiles + to, tile * kStream);
      v_loader.template load<kStream>(v_tiles + to, tile * kStream);
    }
    commit_copies();
  };
  q_loader.template load<kOwn>(q_tile, first);
  do_loader.template load<kOwn>(do_tile, first);
#pragma unroll
  for (int tile = 0; tile < kStages - 1; ++tile) stream_in(tile);

  {  // as many threads a row as there are
    constexpr int kShare = kThreads / kOwn;
    const int part = static_cast<int>(threadIdx.x) % kShare;
    const int row = first + static_cast<int>(threadIdx.x) / kShare;
    float sum = 0.0F;
    if (row < length) {
      const std::int64_t at = place + row * d;
      if (vectors) {
        for (int c = part * 8; c < hd; c += 8 * kShare) {
          float x[8];
          float y[8];
          load_floats<8>(x, dout + at + c);
          load_floats<8>(y, out + at + c);
#pragma unroll
          for (int i = 0; i < 8; ++i) sum += x[i] * y[i];
        }
      } else {
        for (int c = part; c < hd; c += kShare) sum += to_float(dout[at + c]) * to_float(out[at + c]);
      }
    }
    if (kShare == 2) sum += __shfl_xor_sync(0xffffffffU, sum, 1);
    if (part == 0) {
      deltas[threadIdx.x / kShare] = sum;
      if (row < length) delta[stats + row] = sum;
    }
  }

  Rows<kWidth> q_rows[kTiles];
  Rows<kWidth> do_rows[kTiles];
  float acc[kTiles][kWidth / 8][4] = {};
  float row_lse2[kTiles][2] = {};
  float row_delta[kTiles][2] = {};
  const float scale2 = scale * kLog2E;
  const int warp_first = first + warp * 16 * kTiles;
  const int row = warp_first + lane / 4;
  for (int tile = 0; tile < tiles; ++tile) {
    wait_copies<kStages - 2>();
    __syncthreads();
    if (tile == 0) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        q_rows[m].load(shared_address(q_tile), warp_first - first + 16 * m, lane);
        do_rows[m].load(shared_address(do_tile), warp_first - first + 16 * m, lane);
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const int t = row + 16 * m + 8 * side;
          row_delta[m][side] = deltas[t - first];
          row_lse2[m][side] = t < length ? lse[stats + t] * kLog2E : 0.0F;
        }
      }
    }
    stream_in(tile + kStages - 1);
    const int stage = tile % kStages;
    if (tile * kStream > warp_first + 16 * kTiles - 1) continue;  // nothing visible to this warp
    const std::uint32_t k_base = shared_address(k_tiles + stage * kStream * kWidth);
    const std::uint32_t v_base = shared_address(v_tiles + stage * kStream * kWidth);
    float s[kTiles][kStream / 8][4] = {};
    float dp[kTiles][kStream / 8][4] = {};
    product_with_transposed<T, kWidth, kStream, kTiles>(s, q_rows, k_base, lane);
    product_with_transposed<T, kWidth, kStream, kTiles>(dp, do_rows, v_base, lane);
    if (tile * kStream + kStream - 1 > warp_first) {
      const int key = tile * kStream + lane % 4 * 2;
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int n = 0; n < kStream / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (key + 8 * n + (i & 1) > row + 16 * m + 8 * (i >> 1)) s[m][n][i] = -INFINITY;
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int n = 0; n < kStream / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float p = exp2_fast(fmaf(s[m][n][i], scale2, -row_lse2[m][i >> 1]));
          s[m][n][i] = p * (dp[m][n][i] - row_delta[m][i >> 1]);
        }
    accumulate<T, kWidth, kStream, kTiles>(acc, s, k_base, lane);
  }
  Largest<T> largest{absmax};
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int t = row + 16 * m + 8 * side;
      if (t >= length) continue;
      T* const to = dqkv + (b * length + t) * 3 * d + h * hd;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        const float x = acc[m][n][2 * side] * scale;
        const float y = acc[m][n][2 * side + 1] * scale;
        largest.see(x, y);
        store_pair<T>(to, 8 * n + lane % 4 * 2, hd, x, y, vectors);
      }
    }
  largest.publish();
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads, KeyConfig<kWidth>::kBlocks)
    k_keys(T* dqkv, const T* dout, const T* qkv, const float* lse, const float* delta, int length, int heads,
           int hd, float scale, bool vectors, Absmax* absmax) {
  constexpr int kTiles = KeyConfig<kWidth>::kTiles;
  constexpr int kStream = KeyConfig<kWidth>::kStream;
  constexpr int kOwn = KeyConfig<kWidth>::kOwn;
  extern __shared__ __align__(128) unsigned char memory[];
  T* const k_tile = reinterpret_cast<T*>(memory);
  T* const v_tile = k_tile + kOwn * kWidth;
  T* const q_tiles = v_tile + kOwn * kWidth;
  T* const do_tiles = q_tiles + kStages * kStream * kWidth;
  __shared__ alignas(16) float lses[kStages][kStream];
  __shared__ alignas(16) float deltas[kStages][kStream];
  const int first =
      static_cast<int>(blockIdx.z) * kOwn;  // early keys are seen by most queries: they start first
  const std::int64_t b = blockIdx.y;
  const std::int64_t h = blockIdx.x;
  const std::int64_t d = static_cast<std::int64_t>(heads) * hd;
  const T* const q = qkv + b * length * 3 * d + h * hd;
  const T* const dout_head = dout + b * length * d + h * hd;
  const std::int64_t stats = (b * heads + h) * length;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);

  const int begin = first / kStream;
  const int end = (length + kStream - 1) / kStream;
  using Loader = TileLoader<T, kWidth, kThreads>;
  const Loader q_loader(q, 3 * d, length, hd, vectors);
  const Loader do_loader(dout_head, d, length, hd, vectors);
  const Loader k_loader(q + d, 3 * d, length, hd, vectors);
  const Loader v_loader(q + 2 * d, 3 * d, length, hd, vectors);
  const auto stream_in = [&](int tile) {
    if (tile < end) {
      const int stage = tile % kStages;
      const int from = tile * kStream;
      q_loader.template load<kStream>(q_tiles + stage * kStream * kWidth, from);
      do_loader.template load<kStream>(do_tiles + stage * kStream * kWidth, from);
      const int i = static_cast<int>(threadIdx.x) % kStream;
      const bool inside = from + i < length;
      const std::int64_t at = stats + (inside ? from + i : 0);
      if (threadIdx.x < kStream)
        copy_async4(shared_address(&lses[stage][i]), lse + at, inside);
      else if (threadIdx.x < 2 * kStream)
        copy_async4(shared_address(&deltas[stage][i]), delta + at, inside);
    }
    commit_copies();
  };
  k_loader.template load<kOwn>(k_tile, first);
  v_loader.template load<kOwn>(v_tile, first);
#pragma unroll
  for (int tile = 0; tile < kStages - 1; ++tile) stream_in(begin + tile);

  Rows<kWidth> k_rows[kTiles];
  Rows<kWidth> v_rows[kTiles];
  float dk[kTiles][kWidth / 8][4] = {};
  float dv[kTiles][kWidth / 8][4] = {};
  const float scale2 = scale * kLog2E;
  const int warp_first = first + warp * 16 * kTiles;
  const int row = warp_first + lane / 4;
  for (int tile = begin; tile < end; ++tile) {
    wait_copies<kStages - 2>();
    __syncthreads();
    if (tile == begin) {
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        k_rows[m].load(shared_address(k_tile), warp_first - first + 16 * m, lane);
        v_rows[m].load(shared_address(v_tile), warp_first - first + 16 * m, lane);
      }
    }
    stream_in(tile + kStages - 1);
    if (tile * kStream + kStream - 1 < warp_first) continue;  // these queries see none of the warp's keys
    const int stage = tile % kStages;
    const std::uint32_t q_base = shared_address(q_tiles + stage * kStream * kWidth);
    const std::uint32_t do_base = shared_address(do_tiles + stage * kStream * kWidth);
    float s[kTiles][kStream / 8][4] = {};
    float dp[kTiles][kStream / 8][4] = {};
    product_with_transposed<T, kWidth, kStream, kTiles>(s, k_rows, q_base, lane);
    product_with_transposed<T, kWidth, kStream, kTiles>(dp, v_rows, do_base, lane);
    if (tile * kStream < warp_first + 16 * kTiles - 1) {
      const int query = tile * kStream + lane % 4 * 2;
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int n = 0; n < kStream / 8; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (row + 16 * m + 8 * (i >> 1) > query + 8 * n + (i & 1)) s[m][n][i] = -INFINITY;
    }
#pragma unroll
    for (int n = 0; n < kStream / 8; ++n) {
      const float2 l = *reinterpret_cast<const float2*>(&lses[stage][8 * n + lane % 4 * 2]);
      const float2 del = *reinterpret_cast<const float2*>(&deltas[stage][8 * n + lane % 4 * 2]);
      const float lse2[2] = {l.x * kLog2E, l.y * kLog2E};
      const float column_delta[2] = {del.x, del.y};
#pragma unroll
      for (int m = 0; m < kTiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float p = exp2_fast(fmaf(s[m][n][i], scale2, -lse2[i & 1]));
          s[m][n][i] = p;
          dp[m][n][i] = p * (dp[m][n][i] - column_delta[i & 1]);
        }
    }
    accumulate<T, kWidth, kStream, kTiles>(dv, s, do_base, lane);
    accumulate<T, kWidth, kStream, kTiles>(dk, dp, q_base, lane);
  }
  Largest<T> largest{absmax};
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int t = row + 16 * m + 8 * side;
      if (t >= length) continue;
      T* const to = dqkv + (b * length + t) * 3 * d + d + h * hd;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        const int column = 8 * n + lane % 4 * 2;
        const float x = dk[m][n][2 * side] * scale;
        const float y = dk[m][n][2 * side + 1] * scale;
        largest.see(x, y);
        largest.see(dv[m][n][2 * side], dv[m][n][2 * side + 1]);
        store_pair<T>(to, column, hd, x, y, vectors);
        store_pair<T>(to + d, column, hd, dv[m][n][2 * side], dv[m][n][2 * side + 1], vectors);
      }
    }
  largest.publish();
}

template <typename T, int kWidth>
void launch(T* dqkv, const T* dout, const T* out, const T* qkv, const float* lse, float* delta,
            const AttentionShape& shape, bool vectors, Absmax* absmax, cudaStream_t stream) {
  constexpr int kElement = static_cast<int>(sizeof(T));
  using Q = QueryConfig<kWidth>;
  using K = KeyConfig<kWidth>;
  constexpr int kQueryBytes = (2 * Q::kOwn + 2 * kStages * Q::kStream) * kWidth * kElement;
  constexpr int kKeyBytes = (2 * K::kOwn + 2 * kStages * K::kStream) * kWidth * kElement;
  ANDREA_CUDA_CHECK(
      cudaFuncSetAttribute(k_queries<T, kWidth>, cudaFuncAttributeMaxDynamicSharedMemorySize, kQueryBytes));
  ANDREA_CUDA_CHECK(
      cudaFuncSetAttribute(k_keys<T, kWidth>, cudaFuncAttributeMaxDynamicSharedMemorySize, kKeyBytes));
  const auto grid = [&](int own) {
    return dim3(static_cast<unsigned>(shape.H), static_cast<unsigned>(shape.B), blocks_for(shape.T, own));
  };
  const auto length = static_cast<int>(shape.T);
  const auto heads = static_cast<int>(shape.H);
  const auto hd = static_cast<int>(shape.hd);
  const float scale = 1.0F / sqrtf(static_cast<float>(hd));
  k_queries<T, kWidth><<<grid(Q::kOwn), kThreads, kQueryBytes, stream>>>(
      dqkv, delta, dout, out, qkv, lse, length, heads, hd, scale, vectors, absmax);
  ANDREA_CUDA_LAUNCHED("k_attn_bwd (queries)");
  k_keys<T, kWidth><<<grid(K::kOwn), kThreads, kKeyBytes, stream>>>(dqkv, dout, qkv, lse, delta, length,
                                                                    heads, hd, scale, vectors, absmax);
  ANDREA_CUDA_LAUNCHED("k_attn_bwd (keys)");
}

}  // namespace

template <typename T>
void attention_backward(T* dqkv, const T* dout, const T* out, const T* qkv, const float* lse, float* delta,
                        const AttentionShape& shape, Absmax* absmax, cudaStream_t stream) {
  const bool vectors = shape.hd % 8 == 0 && aligned16(dqkv, dout, out, qkv);
  if (shape.hd <= 32)
    launch<T, 32>(dqkv, dout, out, qkv, lse, delta, shape, vectors, absmax, stream);
  else if (shape.hd <= 64)
    launch<T, 64>(dqkv, dout, out, qkv, lse, delta, shape, vectors, absmax, stream);
  else
    launch<T, 128>(dqkv, dout, out, qkv, lse, delta, shape, vectors, absmax, stream);
}

template void attention_backward<__half>(__half*, const __half*, const __half*, const __half*, const float*,
                                         float*, const AttentionShape&, Absmax*, cudaStream_t);
template void attention_backward<__nv_bfloat16>(__nv_bfloat16*, const __nv_bfloat16*, const __nv_bfloat16*,
                                                const __nv_bfloat16*, const float*, float*,
                                                const AttentionShape&, Absmax*, cudaStream_t);

}  // namespace andrea::cuda
