// k_attn_bwd for 16-bit types: see attention.cpp for the formulas.
// k_queries: a block owns 64 queries, finds delta for them and goes over tiles of keys: dQ.
// k_keys:    a block owns 64 keys and goes over tiles of queries, computing S^T and dP^T so that P^T and dS^T
//            come out as the A operands of dV and dK.
// A warp owns 16 rows. S, dP and the gradients stay in registers, the streamed tiles go through two
// shared-memory stages. Each gradient is added by one warp, tile after tile: deterministic.
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/check.h"

namespace andrea::cuda {
namespace {

constexpr int kOwn = 64;  // rows a block owns
constexpr int kThreads = kOwn / 16 * 32;

// Rows of a streamed tile: smaller where a wider head needs the registers.
template <int kWidth>
constexpr int kQueryStream = kWidth == 128 ? 32 : 64;
template <int kWidth>
constexpr int kKeyStream = kWidth == 32 ? 64 : 32;

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

/// c [16, kCols] = rows tile^T
template <typename T, int kWidth, int kCols>
__device__ __forceinline__ void product_with_transposed(float (&c)[kCols / 8][4], const Rows<kWidth>& rows,
                                                        std::uint32_t tile, int lane) {
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k) {
    std::uint32_t a[4];
    rows.get(a, k);
#pragma unroll
    for (int n = 0; n < kCols / 16; ++n) {
      std::uint32_t b[4];
      Tile<kWidth>::load_b(b, tile, n * 16, k, lane);
      mma<T>(c[2 * n], a, b[0], b[1]);
      mma<T>(c[2 * n + 1], a, b[2], b[3]);
    }
  }
}

/// acc [16, kWidth] += weights [16, kCols], rounded to T, times tile [kCols, kWidth]
template <typename T, int kWidth, int kCols>
__device__ __forceinline__ void accumulate(float (&acc)[kWidth / 8][4], const float (&weights)[kCols / 8][4],
                                           std::uint32_t tile, int lane) {
#pragma unroll
  for (int k = 0; k < kCols / 16; ++k) {
    const std::uint32_t a[4] = {pack<T>(weights[2 * k][0], weights[2 * k][1]),
                                pack<T>(weights[2 * k][2], weights[2 * k][3]),
                                pack<T>(weights[2 * k + 1][0], weights[2 * k + 1][1]),
                                pack<T>(weights[2 * k + 1][2], weights[2 * k + 1][3])};
#pragma unroll
    for (int n = 0; n < kWidth / 16; ++n) {
      std::uint32_t b[4];
      Tile<kWidth>::load_b_rows(b, tile, k, n, lane);
      mma<T>(acc[2 * n], a, b[0], b[1]);
      mma<T>(acc[2 * n + 1], a, b[2], b[3]);
    }
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    k_queries(T* dqkv, float* delta, const T* dout, const T* out, const T* qkv, const float* lse, int length,
              int heads, int hd, float scale, bool vectors) {
  constexpr int kStream = kQueryStream<kWidth>;
  extern __shared__ __align__(128) unsigned char memory[];
  T* const q_tile = reinterpret_cast<T*>(memory);
  T* const do_tile = q_tile + kOwn * kWidth;
  T* const k_tiles = do_tile + kOwn * kWidth;
  T* const v_tiles = k_tiles + 2 * kStream * kWidth;
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

  load_tile<T, kWidth, kOwn, kThreads>(q_tile, q, 3 * d, first, length, hd, vectors);
  load_tile<T, kWidth, kOwn, kThreads>(do_tile, dout + place, d, first, length, hd, vectors);
  load_tile<T, kWidth, kStream, kThreads>(k_tiles, q + d, 3 * d, 0, length, hd, vectors);
  load_tile<T, kWidth, kStream, kThreads>(v_tiles, q + 2 * d, 3 * d, 0, length, hd, vectors);
  commit_copies();

  {  // two threads a row
    const int row = first + static_cast<int>(threadIdx.x / 2);
    float sum = 0.0F;
    if (row < length) {
      const std::int64_t at = place + row * d;
      if (vectors) {
        for (int c = static_cast<int>(threadIdx.x % 2) * 8; c < hd; c += 16) {
          float x[8];
          float y[8];
          load_floats<8>(x, dout + at + c);
          load_floats<8>(y, out + at + c);
#pragma unroll
          for (int i = 0; i < 8; ++i) sum += x[i] * y[i];
        }
      } else {
        for (int c = static_cast<int>(threadIdx.x % 2); c < hd; c += 2)
          sum += to_float(dout[at + c]) * to_float(out[at + c]);
      }
    }
    sum += __shfl_xor_sync(0xffffffffU, sum, 1);
    if (threadIdx.x % 2 == 0) {
      deltas[threadIdx.x / 2] = sum;
      if (row < length) delta[stats + row] = sum;
    }
  }

  Rows<kWidth> q_rows;
  Rows<kWidth> do_rows;
  float acc[kWidth / 8][4] = {};
  float row_lse2[2] = {};
  float row_delta[2] = {};
  const float scale2 = scale * kLog2E;
  const int row = first + warp * 16 + lane / 4;
  const int last = min(first + kOwn, length) - 1;
  const int tiles = last / kStream + 1;
  for (int tile = 0; tile < tiles; ++tile) {
    wait_copies<0>();
    __syncthreads();
    if (tile == 0) {
      q_rows.load(shared_address(q_tile), warp * 16, lane);
      do_rows.load(shared_address(do_tile), warp * 16, lane);
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        row_delta[side] = deltas[warp * 16 + lane / 4 + 8 * side];
        row_lse2[side] = row + 8 * side < length ? lse[stats + row + 8 * side] * kLog2E : 0.0F;
      }
    }
    const int stage = tile & 1;
    if (tile + 1 < tiles) {
      const int next = (stage ^ 1) * kStream * kWidth;
      const int from = (tile + 1) * kStream;
      load_tile<T, kWidth, kStream, kThreads>(k_tiles + next, q + d, 3 * d, from, length, hd, vectors);
      load_tile<T, kWidth, kStream, kThreads>(v_tiles + next, q + 2 * d, 3 * d, from, length, hd, vectors);
      commit_copies();
    }
    if (tile * kStream > first + warp * 16 + 15) continue;  // nothing visible to this warp
    const std::uint32_t k_base = shared_address(k_tiles + stage * kStream * kWidth);
    const std::uint32_t v_base = shared_address(v_tiles + stage * kStream * kWidth);
    float s[kStream / 8][4] = {};
    float dp[kStream / 8][4] = {};
    product_with_transposed<T, kWidth, kStream>(s, q_rows, k_base, lane);
    product_with_transposed<T, kWidth, kStream>(dp, do_rows, v_base, lane);
    const int key = tile * kStream + lane % 4 * 2;
    const bool diagonal = tile * kStream + kStream - 1 > first + warp * 16;
#pragma unroll
    for (int n = 0; n < kStream / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int side = i >> 1;
        float p = exp2_fast(fmaf(s[n][i], scale2, -row_lse2[side]));
        if (diagonal && key + 8 * n + (i & 1) > row + 8 * side) p = 0.0F;
        s[n][i] = p * (dp[n][i] - row_delta[side]);
      }
    accumulate<T, kWidth, kStream>(acc, s, k_base, lane);
  }
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int t = row + 8 * side;
    if (t >= length) continue;
    T* const to = dqkv + (b * length + t) * 3 * d + h * hd;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
      store_pair<T>(to, 8 * n + lane % 4 * 2, hd, acc[n][2 * side] * scale, acc[n][2 * side + 1] * scale,
                    vectors);
  }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    k_keys(T* dqkv, const T* dout, const T* qkv, const float* lse, const float* delta, int length, int heads,
           int hd, float scale, bool vectors) {
  constexpr int kStream = kKeyStream<kWidth>;
  extern __shared__ __align__(128) unsigned char memory[];
  T* const k_tile = reinterpret_cast<T*>(memory);
  T* const v_tile = k_tile + kOwn * kWidth;
  T* const q_tiles = v_tile + kOwn * kWidth;
  T* const do_tiles = q_tiles + 2 * kStream * kWidth;
  __shared__ alignas(16) float lses[2][kStream];
  __shared__ alignas(16) float deltas[2][kStream];
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

  const auto stream_in = [&](int tile) {
    const int stage = tile & 1;
    const int from = tile * kStream;
    load_tile<T, kWidth, kStream, kThreads>(q_tiles + stage * kStream * kWidth, q, 3 * d, from, length, hd,
                                            vectors);
    load_tile<T, kWidth, kStream, kThreads>(do_tiles + stage * kStream * kWidth, dout_head, d, from, length,
                                            hd, vectors);
    const int i = static_cast<int>(threadIdx.x) % kStream;
    const bool inside = from + i < length;
    const std::int64_t at = stats + (inside ? from + i : 0);
    if (threadIdx.x < kStream)
      copy_async4(shared_address(&lses[stage][i]), lse + at, inside);
    else if (threadIdx.x < 2 * kStream)
      copy_async4(shared_address(&deltas[stage][i]), delta + at, inside);
    commit_copies();
  };
  load_tile<T, kWidth, kOwn, kThreads>(k_tile, q + d, 3 * d, first, length, hd, vectors);
  load_tile<T, kWidth, kOwn, kThreads>(v_tile, q + 2 * d, 3 * d, first, length, hd, vectors);
  const int begin = first / kStream;
  const int end = (length + kStream - 1) / kStream;
  stream_in(begin);

  Rows<kWidth> k_rows;
  Rows<kWidth> v_rows;
  float dk[kWidth / 8][4] = {};
  float dv[kWidth / 8][4] = {};
  const float scale2 = scale * kLog2E;
  const int row = first + warp * 16 + lane / 4;
  for (int tile = begin; tile < end; ++tile) {
    wait_copies<0>();
    __syncthreads();
    if (tile == begin) {
      k_rows.load(shared_address(k_tile), warp * 16, lane);
      v_rows.load(shared_address(v_tile), warp * 16, lane);
    }
    if (tile + 1 < end) stream_in(tile + 1);
    if (tile * kStream + kStream - 1 < first + warp * 16)
      continue;  // these queries see none of the warp's keys
    const int stage = tile & 1;
    const std::uint32_t q_base = shared_address(q_tiles + stage * kStream * kWidth);
    const std::uint32_t do_base = shared_address(do_tiles + stage * kStream * kWidth);
    float s[kStream / 8][4] = {};
    float dp[kStream / 8][4] = {};
    product_with_transposed<T, kWidth, kStream>(s, k_rows, q_base, lane);
    product_with_transposed<T, kWidth, kStream>(dp, v_rows, do_base, lane);
    const int query = tile * kStream + lane % 4 * 2;
    const bool diagonal = tile * kStream < first + warp * 16 + 15;
#pragma unroll
    for (int n = 0; n < kStream / 8; ++n) {
      const float2 l = *reinterpret_cast<const float2*>(&lses[stage][8 * n + lane % 4 * 2]);
      const float2 del = *reinterpret_cast<const float2*>(&deltas[stage][8 * n + lane % 4 * 2]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float lse2 = ((i & 1) != 0 ? l.y : l.x) * kLog2E;
        float p = exp2_fast(fmaf(s[n][i], scale2, -lse2));
        if (diagonal && row + 8 * (i >> 1) > query + 8 * n + (i & 1)) p = 0.0F;
        s[n][i] = p;
        dp[n][i] = p * (dp[n][i] - ((i & 1) != 0 ? del.y : del.x));
      }
    }
    accumulate<T, kWidth, kStream>(dv, s, do_base, lane);
    accumulate<T, kWidth, kStream>(dk, dp, q_base, lane);
  }
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int t = row + 8 * side;
    if (t >= length) continue;
    T* const to = dqkv + (b * length + t) * 3 * d + d + h * hd;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      const int column = 8 * n + lane % 4 * 2;
      store_pair<T>(to, column, hd, dk[n][2 * side] * scale, dk[n][2 * side + 1] * scale, vectors);
      store_pair<T>(to + d, column, hd, dv[n][2 * side], dv[n][2 * side + 1], vectors);
    }
  }
}

template <typename T, int kWidth>
void launch(T* dqkv, const T* dout, const T* out, const T* qkv, const float* lse, float* delta,
            const AttentionShape& shape, bool vectors, cudaStream_t stream) {
  constexpr int kElement = static_cast<int>(sizeof(T));
  constexpr int kQueryBytes = (2 * kOwn + 4 * kQueryStream<kWidth>)*kWidth * kElement;
  constexpr int kKeyBytes = (2 * kOwn + 4 * kKeyStream<kWidth>)*kWidth * kElement;
  ANDREA_CUDA_CHECK(
      cudaFuncSetAttribute(k_queries<T, kWidth>, cudaFuncAttributeMaxDynamicSharedMemorySize, kQueryBytes));
  ANDREA_CUDA_CHECK(
      cudaFuncSetAttribute(k_keys<T, kWidth>, cudaFuncAttributeMaxDynamicSharedMemorySize, kKeyBytes));
  const dim3 grid(static_cast<unsigned>(shape.H), static_cast<unsigned>(shape.B), blocks_for(shape.T, kOwn));
  const auto length = static_cast<int>(shape.T);
  const auto heads = static_cast<int>(shape.H);
  const auto hd = static_cast<int>(shape.hd);
  const float scale = 1.0F / sqrtf(static_cast<float>(hd));
  k_queries<T, kWidth><<<grid, kThreads, kQueryBytes, stream>>>(dqkv, delta, dout, out, qkv, lse, length,
                                                                heads, hd, scale, vectors);
  ANDREA_CUDA_LAUNCHED("k_attn_bwd (queries)");
  k_keys<T, kWidth>
      <<<grid, kThreads, kKeyBytes, stream>>>(dqkv, dout, qkv, lse, delta, length, heads, hd, scale, vectors);
  ANDREA_CUDA_LAUNCHED("k_attn_bwd (keys)");
}

}  // namespace

template <typename T>
void attention_backward(T* dqkv, const T* dout, const T* out, const T* qkv, const float* lse, float* delta,
                        const AttentionShape& shape, cudaStream_t stream) {
  if (shape.B * shape.T * shape.H == 0) return;
  const bool vectors = shape.hd % 8 == 0 && aligned16(dqkv, dout, out, qkv);
  if (shape.hd <= 32)
    launch<T, 32>(dqkv, dout, out, qkv, lse, delta, shape, vectors, stream);
  else if (shape.hd <= 64)
    launch<T, 64>(dqkv, dout, out, qkv, lse, delta, shape, vectors, stream);
  else
    launch<T, 128>(dqkv, dout, out, qkv, lse, delta, shape, vectors, stream);
}

template void attention_backward<__half>(__half*, const __half*, const __half*, const __half*, const float*,
                                         float*, const AttentionShape&, cudaStream_t);
template void attention_backward<__nv_bfloat16>(__nv_bfloat16*, const __nv_bfloat16*, const __nv_bfloat16*,
                                                const __nv_bfloat16*, const float*, float*,
                                                const AttentionShape&, cudaStream_t);

}  // namespace andrea::cuda
