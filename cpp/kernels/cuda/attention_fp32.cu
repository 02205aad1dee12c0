// k_attn_fwd / k_attn_bwd for float32: see attention.cpp for the formulas. Plain FMA, no TF32, no tensor
// cores. The same plan as for 16-bit types: a block of 128 threads owns kRows rows of one (sequence, head)
// and goes over tiles of kCols rows of the other side. Thread (y, x) of 8 x 16 owns rows y + 8 i and columns
// x + 16 j of a tile of scores, and rows y + 8 i of the result with neighbouring columns. P and dS pass
// through shared memory from the first layout to the second. Each gradient is added by one thread in tile
// order: deterministic.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace andrea::cuda {
namespace {

constexpr int kThreads = 128;

// Rows of a tile: 64, or 32 for wide heads, so that four tiles fit into the shared memory of small GPUs.
template <int kWidth>
constexpr int kTileRows = kWidth == 128 ? 32 : 64;

// Steps of 4 products in flight: more where registers allow.
template <int kWidth>
constexpr int kUnroll = kWidth == 32 ? 4 : 2;

// Rows are padded by 4 floats: 128-bit reads of 8 different rows then fall into different banks.
template <int kWidth>
constexpr int kPitch = kWidth + 4;

template <int kWidth, int kRows>
__device__ __forceinline__ void load_tile(float* tile, const float* from, std::int64_t step, int first,
                                          int rows, int hd, bool vectors) {
  constexpr int kGroups = kWidth / 4;
  for (int item = static_cast<int>(threadIdx.x); item < kRows * kGroups; item += kThreads) {
    const int row = item / kGroups;
    const int column = item % kGroups * 4;
    float x[4] = {};
    if (first + row < rows && column < hd) {
      const float* const source = from + static_cast<std::int64_t>(first + row) * step + column;
      if (vectors)
        load_floats<4>(x, source);
      else
        for (int c = 0; c < 4 && column + c < hd; ++c) x[c] = source[c];
    }
    store_floats<4>(tile + row * kPitch<kWidth> + column, x);
  }
}

/// s[i][j] = sum_k a[y + 8 i][k] b[x + 16 j][k]
template <int kWidth, int kRows, int kCols>
__device__ __forceinline__ void scores(float (&s)[kRows / 8][kCols / 16], const float* a, const float* b,
                                       int y, int x) {
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i)
#pragma unroll
    for (int j = 0; j < kCols / 16; ++j) s[i][j] = 0.0F;
#pragma unroll kUnroll < kWidth>
  for (int k = 0; k < kWidth; k += 4) {
    float left[kRows / 8][4];
    float right[kCols / 16][4];
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) load_floats<4>(left[i], a + (y + 8 * i) * kPitch<kWidth> + k);
#pragma unroll
    for (int j = 0; j < kCols / 16; ++j) load_floats<4>(right[j], b + (x + 16 * j) * kPitch<kWidth> + k);
#pragma unroll
    for (int c = 0; c < 4; ++c)
#pragma unroll
      for (int i = 0; i < kRows / 8; ++i)
#pragma unroll
        for (int j = 0; j < kCols / 16; ++j) s[i][j] = fmaf(left[i][c], right[j][c], s[i][j]);
  }
}

/// Columns of the result that a thread owns: groups of kVecs floats, 16 threads side by side.
template <int kWidth>
struct Columns {
  static constexpr int kN = kWidth / 16 < 4 ? kWidth / 16 : 4;  // neighbours
  static constexpr int kGroups = kWidth / 16 / kN;
  __device__ __forceinline__ static int at(int x, int group) { return group * 16 * kN + x * kN; }
};

/// acc[i][.] += sum_k p[y + 8 i][k] v[k][columns of x]
template <int kWidth, int kRows, int kCols>
__device__ __forceinline__ void accumulate(float (&acc)[kRows / 8][kWidth / 16], const float* p,
                                           const float* v, int y, int x) {
  using C = Columns<kWidth>;
#pragma unroll kUnroll < kWidth>
  for (int k = 0; k < kCols; k += 4) {
    float left[kRows / 8][4];
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) load_floats<4>(left[i], p + (y + 8 * i) * kPitch<kCols> + k);
#pragma unroll
    for (int c = 0; c < 4; ++c)
#pragma unroll
      for (int g = 0; g < C::kGroups; ++g) {
        float right[C::kN];
        load_floats<C::kN>(right, v + (k + c) * kPitch<kWidth> + C::at(x, g));
#pragma unroll
        for (int i = 0; i < kRows / 8; ++i)
#pragma unroll
          for (int n = 0; n < C::kN; ++n)
            acc[i][g * C::kN + n] = fmaf(left[i][c], right[n], acc[i][g * C::kN + n]);
      }
  }
}

template <int kRows, int kCols>
__device__ __forceinline__ void publish(float* to, const float (&s)[kRows / 8][kCols / 16], int y, int x) {
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i)
#pragma unroll
    for (int j = 0; j < kCols / 16; ++j) to[(y + 8 * i) * kPitch<kCols> + x + 16 * j] = s[i][j];
}

template <int kWidth, int kRows>
__device__ __forceinline__ void store(float* to, std::int64_t step,
                                      const float (&acc)[kRows / 8][kWidth / 16], float factor, int first,
                                      int length, int hd, int y, int x) {
  using C = Columns<kWidth>;
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i) {
    const int t = first + y + 8 * i;
    if (t >= length) continue;
#pragma unroll
    for (int g = 0; g < C::kGroups; ++g)
#pragma unroll
      for (int n = 0; n < C::kN; ++n)
        if (C::at(x, g) + n < hd) to[t * step + C::at(x, g) + n] = acc[i][g * C::kN + n] * factor;
  }
}

// Where a block works, and where its head lies.
struct Place {
  int first;
  std::int64_t d, qkv, out, stats;
  __device__ __forceinline__ Place(int tile, int rows, int length, int heads, int hd) {
    const std::int64_t b = blockIdx.y;
    const std::int64_t h = blockIdx.x;
    first = tile * rows;
    d = static_cast<std::int64_t>(heads) * hd;
    qkv = b * length * 3 * d + h * hd;
    out = b * length * d + h * hd;
    stats = (b * heads + h) * length;
  }
};

template <int kWidth>
__global__ void __launch_bounds__(kThreads) k_forward(float* out, float* lse, const float* qkv, int length,
                                                      int heads, int hd, float scale, bool vectors) {
  constexpr int kRows = kTileRows<kWidth>;
  extern __shared__ __align__(16) float shared[];
  float* const q_tile = shared;
  float* const k_tile = q_tile + kRows * kPitch<kWidth>;
  float* const v_tile = k_tile + kRows * kPitch<kWidth>;
  float* const p_tile = v_tile + kRows * kPitch<kWidth>;
  const Place at(static_cast<int>(gridDim.z - 1 - blockIdx.z), kRows, length, heads, hd);
  const int y = static_cast<int>(threadIdx.x / 16);
  const int x = static_cast<int>(threadIdx.x % 16);
  load_tile<kWidth, kRows>(q_tile, qkv + at.qkv, 3 * at.d, at.first, length, hd, vectors);
  float acc[kRows / 8][kWidth / 16] = {};
  float row_max[kRows / 8];
  float row_sum[kRows / 8];
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i) {
    row_max[i] = -INFINITY;
    row_sum[i] = 0.0F;
  }
  const int tiles = (min(at.first + kRows, length) - 1) / kRows + 1;
  for (int tile = 0; tile < tiles; ++tile) {
    __syncthreads();
    load_tile<kWidth, kRows>(k_tile, qkv + at.qkv + at.d, 3 * at.d, tile * kRows, length, hd, vectors);
    load_tile<kWidth, kRows>(v_tile, qkv + at.qkv + 2 * at.d, 3 * at.d, tile * kRows, length, hd, vectors);
    __syncthreads();
    float s[kRows / 8][kRows / 16];
    scores<kWidth, kRows, kRows>(s, q_tile, k_tile, y, x);
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i) {
      float max = row_max[i];
#pragma unroll
      for (int j = 0; j < kRows / 16; ++j) {
        if (tile * kRows + x + 16 * j > at.first + y + 8 * i) s[i][j] = -INFINITY;
        s[i][j] *= scale;
        max = fmaxf(max, s[i][j]);
      }
#pragma unroll
      for (int step = 8; step > 0; step /= 2) max = fmaxf(max, __shfl_xor_sync(kFullWarp, max, step));
      const float shrink = __expf(row_max[i] - max);
      float sum = 0.0F;
#pragma unroll
      for (int j = 0; j < kRows / 16; ++j) {
        s[i][j] = __expf(s[i][j] - max);
        sum += s[i][j];
      }
      row_max[i] = max;
      row_sum[i] = row_sum[i] * shrink + sum;
#pragma unroll
      for (int n = 0; n < kWidth / 16; ++n) acc[i][n] *= shrink;
    }
    publish<kRows, kRows>(p_tile, s, y, x);
    __syncwarp();  // a warp owns whole rows of P
    accumulate<kWidth, kRows, kRows>(acc, p_tile, v_tile, y, x);
  }
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i) {
    const float sum = warp_sum<16>(row_sum[i]);
    const int t = at.first + y + 8 * i;
    if (x == 0 && t < length) lse[at.stats + t] = row_max[i] + logf(sum);
#pragma unroll
    for (int n = 0; n < kWidth / 16; ++n) acc[i][n] /= sum;
  }
  store<kWidth, kRows>(out + at.out, at.d, acc, 1.0F, at.first, length, hd, y, x);
}

// dQ and delta for the queries of a block.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, kWidth == 32 ? 3 : 1)
    k_queries(float* dqkv, float* delta, const float* dout, const float* out, const float* qkv,
              const float* lse, int length, int heads, int hd, float scale, bool vectors) {
  constexpr int kRows = kTileRows<kWidth>;
  extern __shared__ __align__(16) float shared[];
  float* const q_tile = shared;
  float* const do_tile = q_tile + kRows * kPitch<kWidth>;
  float* const k_tile = do_tile + kRows * kPitch<kWidth>;
  float* const v_tile = k_tile + kRows * kPitch<kWidth>;
  float* const ds_tile = v_tile + kRows * kPitch<kWidth>;
  const Place at(static_cast<int>(gridDim.z - 1 - blockIdx.z), kRows, length, heads, hd);
  const int y = static_cast<int>(threadIdx.x / 16);
  const int x = static_cast<int>(threadIdx.x % 16);
  load_tile<kWidth, kRows>(q_tile, qkv + at.qkv, 3 * at.d, at.first, length, hd, vectors);
  load_tile<kWidth, kRows>(do_tile, dout + at.out, at.d, at.first, length, hd, vectors);
  load_tile<kWidth, kRows>(k_tile, out + at.out, at.d, at.first, length, hd,
                           vectors);  // out, for delta
  __syncthreads();
  float row_delta[kRows / 8];
  float row_lse[kRows / 8];
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i) {
    const int row = y + 8 * i;
    float sum = 0.0F;
#pragma unroll
    for (int c = 0; c < kWidth; c += 16)
      sum += do_tile[row * kPitch<kWidth> + c + x] * k_tile[row * kPitch<kWidth> + c + x];
    row_delta[i] = warp_sum<16>(sum);
    row_lse[i] = 0.0F;
    if (at.first + row < length) {
      row_lse[i] = lse[at.stats + at.first + row];
      if (x == 0) delta[at.stats + at.first + row] = row_delta[i];
    }
  }
  float acc[kRows / 8][kWidth / 16] = {};
  const int tiles = (min(at.first + kRows, length) - 1) / kRows + 1;
  for (int tile = 0; tile < tiles; ++tile) {
    __syncthreads();
    load_tile<kWidth, kRows>(k_tile, qkv + at.qkv + at.d, 3 * at.d, tile * kRows, length, hd, vectors);
    load_tile<kWidth, kRows>(v_tile, qkv + at.qkv + 2 * at.d, 3 * at.d, tile * kRows, length, hd, vectors);
    __syncthreads();
    float s[kRows / 8][kRows / 16];
    float dp[kRows / 8][kRows / 16];
    scores<kWidth, kRows, kRows>(s, q_tile, k_tile, y, x);
    scores<kWidth, kRows, kRows>(dp, do_tile, v_tile, y, x);
#pragma unroll
    for (int i = 0; i < kRows / 8; ++i)
#pragma unroll
      for (int j = 0; j < kRows / 16; ++j) {
        const bool seen = tile * kRows + x + 16 * j <= at.first + y + 8 * i;
        s[i][j] = seen ? __expf(s[i][j] * scale - row_lse[i]) * (dp[i][j] - row_delta[i]) : 0.0F;
      }
    publish<kRows, kRows>(ds_tile, s, y, x);
    __syncwarp();
    accumulate<kWidth, kRows, kRows>(acc, ds_tile, k_tile, y, x);
  }
  store<kWidth, kRows>(dqkv + at.qkv, 3 * at.d, acc, scale, at.first, length, hd, y, x);
}

// dK and dV for the keys of a block. Tiles of scores are [keys, queries] here.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, kWidth == 32 ? 3 : 1)
    k_keys(float* dqkv, const float* dout, const float* qkv, const float* lse, const float* delta, int length,
           int heads, int hd, float scale, bool vectors) {
  constexpr int kRows = kTileRows<kWidth>;
  extern __shared__ __align__(16) float shared[];
  float* const k_tile = shared;
  float* const v_tile = k_tile + kRows * kPitch<kWidth>;
  float* const q_tile = v_tile + kRows * kPitch<kWidth>;
  float* const do_tile = q_tile + kRows * kPitch<kWidth>;
  float* const p_tile = do_tile + kRows * kPitch<kWidth>;
  const Place at(static_cast<int>(blockIdx.z), kRows, length, heads, hd);
  const int y = static_cast<int>(threadIdx.x / 16);
  const int x = static_cast<int>(threadIdx.x % 16);
  load_tile<kWidth, kRows>(k_tile, qkv + at.qkv + at.d, 3 * at.d, at.first, length, hd, vectors);
  load_tile<kWidth, kRows>(v_tile, qkv + at.qkv + 2 * at.d, 3 * at.d, at.first, length, hd, vectors);
  float dk[kRows / 8][kWidth / 16] = {};
  float dv[kRows / 8][kWidth / 16] = {};
  const int end = (length + kRows - 1) / kRows;
  for (int tile = static_cast<int>(blockIdx.z); tile < end; ++tile) {
    __syncthreads();
    load_tile<kWidth, kRows>(q_tile, qkv + at.qkv, 3 * at.d, tile * kRows, length, hd, vectors);
    load_tile<kWidth, kRows>(do_tile, dout + at.out, at.d, tile * kRows, length, hd, vectors);
    __syncthreads();
    float s[kRows / 8][kRows / 16];
    float dp[kRows / 8][kRows / 16];
    scores<kWidth, kRows, kRows>(s, k_tile, q_tile, y, x);
    scores<kWidth, kRows, kRows>(dp, v_tile, do_tile, y, x);
#pragma unroll
    for (int j = 0; j < kRows / 16; ++j) {
      const int query = tile * kRows + x + 16 * j;
      const float l = query < length ? lse[at.stats + query] : 0.0F;
      const float del = query < length ? delta[at.stats + query] : 0.0F;
#pragma unroll
      for (int i = 0; i < kRows / 8; ++i) {
        const bool seen = at.first + y + 8 * i <= query && query < length;
        s[i][j] = seen ? __expf(s[i][j] * scale - l) : 0.0F;
        dp[i][j] = s[i][j] * (dp[i][j] - del);
      }
    }
    publish<kRows, kRows>(p_tile, s, y, x);
    __syncwarp();
    accumulate<kWidth, kRows, kRows>(dv, p_tile, do_tile, y, x);
    __syncwarp();
    publish<kRows, kRows>(p_tile, dp, y, x);
    __syncwarp();
    accumulate<kWidth, kRows, kRows>(dk, p_tile, q_tile, y, x);
  }
  store<kWidth, kRows>(dqkv + at.qkv + at.d, 3 * at.d, dk, scale, at.first, length, hd, y, x);
  store<kWidth, kRows>(dqkv + at.qkv + 2 * at.d, 3 * at.d, dv, 1.0F, at.first, length, hd, y, x);
}

template <int kWidth>
constexpr int kSharedBytes(int tiles) {
  return (tiles * kTileRows<kWidth> * kPitch<kWidth> + kTileRows<kWidth> * kPitch<kTileRows<kWidth>>)*4;
}

dim3 grid_of(const AttentionShape& shape, int rows) {
  return dim3(static_cast<unsigned>(shape.H), static_cast<unsigned>(shape.B), blocks_for(shape.T, rows));
}

template <typename Kernel>
void allow_shared(Kernel kernel, int bytes) {
  ANDREA_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

template <int kWidth>
void launch_forward(float* out, float* lse, const float* qkv, const AttentionShape& shape, bool vectors,
                    cudaStream_t stream) {
  constexpr int kBytes = kSharedBytes<kWidth>(3);
  allow_shared(k_forward<kWidth>, kBytes);
  k_forward<kWidth><<<grid_of(shape, kTileRows<kWidth>), kThreads, kBytes, stream>>>(
      out, lse, qkv, static_cast<int>(shape.T), static_cast<int>(shape.H), static_cast<int>(shape.hd),
      1.0F / sqrtf(static_cast<float>(shape.hd)), vectors);
  ANDREA_CUDA_LAUNCHED("k_attn_fwd");
}

template <int kWidth>
void launch_backward(float* dqkv, const float* dout, const float* out, const float* qkv, const float* lse,
                     float* delta, const AttentionShape& shape, bool vectors, cudaStream_t stream) {
  constexpr int kBytes = kSharedBytes<kWidth>(4);
  const auto length = static_cast<int>(shape.T);
  const auto heads = static_cast<int>(shape.H);
  const auto hd = static_cast<int>(shape.hd);
  const float scale = 1.0F / sqrtf(static_cast<float>(hd));
  const dim3 grid = grid_of(shape, kTileRows<kWidth>);
  allow_shared(k_queries<kWidth>, kBytes);
  allow_shared(k_keys<kWidth>, kBytes);
  k_queries<kWidth><<<grid, kThreads, kBytes, stream>>>(dqkv, delta, dout, out, qkv, lse, length, heads, hd,
                                                        scale, vectors);
  ANDREA_CUDA_LAUNCHED("k_attn_bwd (queries)");
  k_keys<kWidth>
      <<<grid, kThreads, kBytes, stream>>>(dqkv, dout, qkv, lse, delta, length, heads, hd, scale, vectors);
  ANDREA_CUDA_LAUNCHED("k_attn_bwd (keys)");
}

}  // namespace

template <>
void attention_forward<float>(float* out, float* lse, const float* qkv, const AttentionShape& shape,
                              cudaStream_t stream) {
  const bool vectors = shape.hd % 4 == 0 && aligned16(out, qkv);
  if (shape.hd <= 32)
    launch_forward<32>(out, lse, qkv, shape, vectors, stream);
  else if (shape.hd <= 64)
    launch_forward<64>(out, lse, qkv, shape, vectors, stream);
  else
    launch_forward<128>(out, lse, qkv, shape, vectors, stream);
}

template <>
void attention_backward<float>(float* dqkv, const float* dout, const float* out, const float* qkv,
                               const float* lse, float* delta, const AttentionShape& shape,
                               cudaStream_t stream) {
  const bool vectors = shape.hd % 4 == 0 && aligned16(dout, out, qkv);
  if (shape.hd <= 32)
    launch_backward<32>(dqkv, dout, out, qkv, lse, delta, shape, vectors, stream);
  else if (shape.hd <= 64)
    launch_backward<64>(dqkv, dout, out, qkv, lse, delta, shape, vectors, stream);
  else
    launch_backward<128>(dqkv, dout, out, qkv, lse, delta, shape, vectors, stream);
}

}  // namespace andrea::cuda
