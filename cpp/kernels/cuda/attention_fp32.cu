// k_attn_fwd / k_attn_bwd for float32: see attention.cpp for the formulas. Plain FMA, no TF32, no tensor
// cores. The same plan as for 16-bit types: a block owns kRows rows of one (sequence, head) and goes over
// tiles of kCols rows of the other side. Thread (y, x) of kY x 16 owns rows y + kY i and columns x + 16 j of
// a tile of scores, and rows y + kY i of the result with neighbouring columns. P and dS pass through shared
// memory from the first layout to the second. Each gradient is added by one thread at a time, in tile order:
// deterministic. The backward pass is one kernel with the 5 products of the formulas.
#include <algorithm>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace andrea::cuda {
namespace {

// Threads of a block: 16 side by side, kY rows of them.
constexpr int kForwardY = 8;
template <int kWidth>
constexpr int kBackwardY = kWidth == 64 ? 16 : 8;  // more warps where the registers of 8 leave few
constexpr int kDeltaThreads = 128;

// Rows of a tile: 64, or 32 for wide heads, so that four tiles fit into the shared memory of small GPUs.
template <int kWidth>
constexpr int kTileRows = kWidth == 128 ? 32 : 64;

// Steps of 4 products in flight: more where registers allow.
template <int kWidth>
constexpr int kUnroll = kWidth == 32 ? 4 : 2;

// Rows are padded by 4 floats: 128-bit reads of 8 different rows then fall into different banks.
template <int kWidth>
constexpr int kPitch = kWidth + 4;

template <int kWidth, int kRows, int kY>
__device__ __forceinline__ void load_tile(float* tile, const float* from, std::int64_t step, int first,
                                          int rows, int hd, bool vectors) {
  constexpr int kGroups = kWidth / 4;
  for (int item = static_cast<int>(threadIdx.x); item < kRows * kGroups; item += 16 * kY) {
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

/// s[i][j] = sum_k a[y + kY i][k] b[x + 16 j][k]
template <int kWidth, int kRows, int kCols, int kY>
__device__ __forceinline__ void scores(float (&s)[kRows / kY][kCols / 16], const float* a, const float* b,
                                       int y, int x) {
#pragma unroll
  for (int i = 0; i < kRows / kY; ++i)
#pragma unroll
    for (int j = 0; j < kCols / 16; ++j) s[i][j] = 0.0F;
#pragma unroll kUnroll < kWidth>
  for (int k = 0; k < kWidth; k += 4) {
    float left[kRows / kY][4];
    float right[kCols / 16][4];
#pragma unroll
    for (int i = 0; i < kRows / kY; ++i) load_floats<4>(left[i], a + (y + kY * i) * kPitch<kWidth> + k);
#pragma unroll
    for (int j = 0; j < kCols / 16; ++j) load_floats<4>(right[j], b + (x + 16 * j) * kPitch<kWidth> + k);
#pragma unroll
    for (int c = 0; c < 4; ++c)
#pragma unroll
      for (int i = 0; i < kRows / kY; ++i)
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

/// acc[i][.] += sum_k p[y + kY i][k] v[k][columns of x]
template <int kWidth, int kRows, int kCols, int kY>
__device__ __forceinline__ void accumulate(float (&acc)[kRows / kY][kWidth / 16], const float* p,
                                           const float* v, int y, int x) {
  using C = Columns<kWidth>;
#pragma unroll kUnroll < kWidth>
  for (int k = 0; k < kCols; k += 4) {
    float left[kRows / kY][4];
#pragma unroll
    for (int i = 0; i < kRows / kY; ++i) load_floats<4>(left[i], p + (y + kY * i) * kPitch<kCols> + k);
#pragma unroll
    for (int c = 0; c < 4; ++c)
#pragma unroll
      for (int g = 0; g < C::kGroups; ++g) {
        float right[C::kN];
        load_floats<C::kN>(right, v + (k + c) * kPitch<kWidth> + C::at(x, g));
#pragma unroll
        for (int i = 0; i < kRows / kY; ++i)
#pragma unroll
          for (int n = 0; n < C::kN; ++n)
            acc[i][g * C::kN + n] = fmaf(left[i][c], right[n], acc[i][g * C::kN + n]);
      }
  }
}

template <int kRows, int kCols, int kY>
__device__ __forceinline__ void publish(float* to, const float (&s)[kRows / kY][kCols / 16], int y, int x) {
#pragma unroll
  for (int i = 0; i < kRows / kY; ++i)
#pragma unroll
    for (int j = 0; j < kCols / 16; ++j) to[(y + kY * i) * kPitch<kCols> + x + 16 * j] = s[i][j];
}

template <int kWidth, int kRows, int kY>
__device__ __forceinline__ void store(float* to, std::int64_t step,
                                      const float (&acc)[kRows / kY][kWidth / 16], float factor, int first,
                                      int length, int hd, int y, int x) {
  using C = Columns<kWidth>;
#pragma unroll
  for (int i = 0; i < kRows / kY; ++i) {
    const int t = first + y + kY * i;
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
__global__ void __launch_bounds__(16 * kForwardY)
    k_forward(float* out, float* lse, const float* qkv, int length, int heads, int hd, float scale,
              bool vectors) {
  constexpr int kY = kForwardY;
  constexpr int kRows = kTileRows<kWidth>;
  extern __shared__ __align__(16) float shared[];
  float* const q_tile = shared;
  float* const k_tile = q_tile + kRows * kPitch<kWidth>;
  float* const v_tile = k_tile + kRows * kPitch<kWidth>;
  float* const p_tile = v_tile + kRows * kPitch<kWidth>;
  const Place at(static_cast<int>(gridDim.z - 1 - blockIdx.z), kRows, length, heads, hd);
  const int y = static_cast<int>(threadIdx.x / 16);
  const int x = static_cast<int>(threadIdx.x % 16);
  load_tile<kWidth, kRows, kY>(q_tile, qkv + at.qkv, 3 * at.d, at.first, length, hd, vectors);
  float acc[kRows / kY][kWidth / 16] = {};
  float row_max[kRows / kY];
  float row_sum[kRows / kY];
#pragma unroll
  for (int i = 0; i < kRows / kY; ++i) {
    row_max[i] = -INFINITY;
    row_sum[i] = 0.0F;
  }
  const int tiles = (min(at.first + kRows, length) - 1) / kRows + 1;
  for (int tile = 0; tile < tiles; ++tile) {
    __syncthreads();
    load_tile<kWidth, kRows, kY>(k_tile, qkv + at.qkv + at.d, 3 * at.d, tile * kRows, length, hd, vectors);
    load_tile<kWidth, kRows, kY>(v_tile, qkv + at.qkv + 2 * at.d, 3 * at.d, tile * kRows, length, hd,
                                 vectors);
    __syncthreads();
    float s[kRows / kY][kRows / 16];
    scores<kWidth, kRows, kRows, kY>(s, q_tile, k_tile, y, x);
#pragma unroll
    for (int i = 0; i < kRows / kY; ++i) {
      float max = row_max[i];
#pragma unroll
      for (int j = 0; j < kRows / 16; ++j) {
        if (tile * kRows + x + 16 * j > at.first + y + kY * i) s[i][j] = -INFINITY;
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
    publish<kRows, kRows, kY>(p_tile, s, y, x);
    __syncwarp();  // a warp owns whole rows of P
    accumulate<kWidth, kRows, kRows, kY>(acc, p_tile, v_tile, y, x);
  }
#pragma unroll
  for (int i = 0; i < kRows / kY; ++i) {
    const float sum = warp_sum<16>(row_sum[i]);
    const int t = at.first + y + kY * i;
    if (x == 0 && t < length) lse[at.stats + t] = row_max[i] + logf(sum);
#pragma unroll
    for (int n = 0; n < kWidth / 16; ++n) acc[i][n] /= sum;
  }
  store<kWidth, kRows, kY>(out + at.out, at.d, acc, 1.0F, at.first, length, hd, y, x);
}

// delta [B, H, T] = sum_j dout_j out_j, 16 threads a row; the turns of dQ's tiles begin at 0.
__global__ void __launch_bounds__(kDeltaThreads)
    k_deltas(float* delta, int* turns, std::int64_t n_turns, const float* dout, const float* out,
             std::int64_t rows, int length, int heads, int hd) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kDeltaThreads + threadIdx.x;
  if (thread < n_turns) turns[thread] = 0;
  const std::int64_t row = thread / 16;  // of [B, T, H]
  if (row >= rows) return;               // a warp's halves leave on their own: the sum below stays in a half
  float sum = 0.0F;
  for (int c = static_cast<int>(thread % 16); c < hd; c += 16) sum += dout[row * hd + c] * out[row * hd + c];
#pragma unroll
  for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffU << (threadIdx.x & 16U), sum, step);
  const std::int64_t h = row % heads;
  const std::int64_t t = row / heads % length;
  const std::int64_t b = row / heads / length;
  if (thread % 16 == 0) delta[(b * heads + h) * length + t] = sum;
}

/// acc[r][.] += sum_k ds[k][rows r of y] keys[k][columns of x]: thread (y, x) owns kRows / kY neighbouring
/// rows.
template <int kWidth, int kRows, int kY>
__device__ __forceinline__ void accumulate_transposed(float (&acc)[kRows / kY][kWidth / 16], const float* ds,
                                                      const float* keys, int y, int x) {
  using C = Columns<kWidth>;
#pragma unroll 4
  for (int k = 0; k < kRows; ++k) {
    float left[kRows / kY];
#pragma unroll
    for (int r = 0; r < kRows / kY; r += 4) {
      float four[4];
      load_floats<4>(four, ds + k * kPitch<kRows> + y * (kRows / kY) + r);
#pragma unroll
      for (int c = 0; c < 4; ++c) left[r + c] = four[c];
    }
#pragma unroll
    for (int g = 0; g < C::kGroups; ++g) {
      float right[C::kN];
      load_floats<C::kN>(right, keys + k * kPitch<kWidth> + C::at(x, g));
#pragma unroll
      for (int r = 0; r < kRows / kY; ++r)
#pragma unroll
        for (int n = 0; n < C::kN; ++n)
          acc[r][g * C::kN + n] = fmaf(left[r], right[n], acc[r][g * C::kN + n]);
    }
  }
}

// dK and dV for a tile of keys, and what it adds to dQ. Tiles of scores are [keys, queries] here. A tile of
// dQ takes its addends in the order of their keys: a block waits for the turn of its own. Blocks take
// tickets, early keys first: those that a block may wait for are running or done. All go through the queries
// from the last on, so that the blocks of a head come to a tile of dQ together and wait for an addition at
// most.
template <int kWidth>
__global__ void __launch_bounds__(16 * kBackwardY<kWidth>, kWidth == 128  ? 1
                                                           : kWidth == 64 ? 2
                                                                          : 3)
    k_backward(float* dqkv, const float* dout, const float* qkv, const float* lse, const float* delta,
               int* turns, int* tickets, int length, int heads, int hd, float scale, bool vectors) {
  constexpr int kY = kBackwardY<kWidth>;
  constexpr int kRows = kTileRows<kWidth>;
  using C = Columns<kWidth>;
  extern __shared__ __align__(16) float shared[];
  float* const k_tile = shared;
  float* const v_tile = k_tile + kRows * kPitch<kWidth>;
  float* const q_tile = v_tile + kRows * kPitch<kWidth>;
  float* const do_tile = q_tile + kRows * kPitch<kWidth>;
  float* const p_tile = do_tile + kRows * kPitch<kWidth>;
  __shared__ int ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(tickets, 1);
  __syncthreads();
  const int tiles = (length + kRows - 1) / kRows;
  const int all_heads = static_cast<int>(gridDim.x) / tiles;
  const int key_tile =
      ticket / all_heads;  // early keys are seen by most queries: the longest blocks start first
  const std::int64_t head = ticket % all_heads;
  const std::int64_t b = head / heads;
  const std::int64_t h = head % heads;
  const std::int64_t d = static_cast<std::int64_t>(heads) * hd;
  const std::int64_t at_qkv = b * length * 3 * d + h * hd;
  const std::int64_t at_out = b * length * d + h * hd;
  const std::int64_t stats = (b * heads + h) * length;
  int* const head_turns = turns + head * tiles;
  const int y = static_cast<int>(threadIdx.x / 16);
  const int x = static_cast<int>(threadIdx.x % 16);

  const int first = key_tile * kRows;
  load_tile<kWidth, kRows, kY>(k_tile, qkv + at_qkv + d, 3 * d, first, length, hd, vectors);
  load_tile<kWidth, kRows, kY>(v_tile, qkv + at_qkv + 2 * d, 3 * d, first, length, hd, vectors);
  float dk[kRows / kY][kWidth / 16] = {};
  float dv[kRows / kY][kWidth / 16] = {};
  for (int tile = tiles - 1; tile >= key_tile; --tile) {
    __syncthreads();
    load_tile<kWidth, kRows, kY>(q_tile, qkv + at_qkv, 3 * d, tile * kRows, length, hd, vectors);
    load_tile<kWidth, kRows, kY>(do_tile, dout + at_out, d, tile * kRows, length, hd, vectors);
    __syncthreads();
    float l[kRows / 16];
    float del[kRows / 16];
#pragma unroll
    for (int j = 0; j < kRows / 16; ++j) {
      const int query = tile * kRows + x + 16 * j;
      l[j] = query < length ? lse[stats + query] : 0.0F;
      del[j] = query < length ? delta[stats + query] : 0.0F;
    }
    // P, then dS: one array of scores at a time leaves registers for operands that are on their way.
    float s[kRows / kY][kRows / 16];
    scores<kWidth, kRows, kRows, kY>(s, k_tile, q_tile, y, x);
#pragma unroll
    for (int j = 0; j < kRows / 16; ++j) {
      const int query = tile * kRows + x + 16 * j;
#pragma unroll
      for (int r = 0; r < kRows / kY; ++r) {
        const bool seen = first + y + kY * r <= query && query < length;
        s[r][j] = seen ? __expf(s[r][j] * scale - l[j]) : 0.0F;
      }
    }
    publish<kRows, kRows, kY>(p_tile, s, y, x);
    __syncwarp();
    accumulate<kWidth, kRows, kRows, kY>(dv, p_tile, do_tile, y, x);
    scores<kWidth, kRows, kRows, kY>(s, v_tile, do_tile, y, x);
#pragma unroll
    for (int r = 0; r < kRows / kY; ++r)
#pragma unroll
      for (int j = 0; j < kRows / 16; ++j)
        s[r][j] = (s[r][j] - del[j]) * p_tile[(y + kY * r) * kPitch<kRows> + x + 16 * j];
    __syncwarp();
    publish<kRows, kRows, kY>(p_tile, s, y, x);
    __syncwarp();
    accumulate<kWidth, kRows, kRows, kY>(dk, p_tile, q_tile, y, x);
    __syncthreads();  // dS of all warps
    float dq[kRows / kY][kWidth / 16] = {};
    accumulate_transposed<kWidth, kRows, kY>(dq, p_tile, k_tile, y, x);

    if (threadIdx.x == 0) {
      while (atomicAdd(head_turns + tile, 0) != key_tile) __nanosleep(64);
      __threadfence();
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows / kY; ++r) {
      const int t = tile * kRows + y * (kRows / kY) + r;
      if (t >= length) continue;
      float* const to = dqkv + at_qkv + static_cast<std::int64_t>(t) * 3 * d;
#pragma unroll
      for (int g = 0; g < C::kGroups; ++g)
#pragma unroll
        for (int n = 0; n < C::kN; ++n)
          if (C::at(x, g) + n < hd) {
            float* const place = to + C::at(x, g) + n;
            const float before = key_tile == 0 ? 0.0F : __ldcg(place);
            __stcg(place, fmaf(dq[r][g * C::kN + n], scale, before));
          }
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) atomicExch(head_turns + tile, key_tile + 1);
  }
  store<kWidth, kRows, kY>(dqkv + at_qkv + d, 3 * d, dk, scale, first, length, hd, y, x);
  store<kWidth, kRows, kY>(dqkv + at_qkv + 2 * d, 3 * d, dv, 1.0F, first, length, hd, y, x);
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
  k_forward<kWidth><<<grid_of(shape, kTileRows<kWidth>), 16 * kForwardY, kBytes, stream>>>(
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
  const std::int64_t rows = shape.B * shape.T * shape.H;
  const std::int64_t tiles = (shape.T + kTileRows<kWidth> - 1) / kTileRows<kWidth>;
  const std::int64_t blocks = shape.B * shape.H * tiles;
  const std::int64_t n_turns = blocks + 1;  // and the counter of tickets
  int* const turns = reinterpret_cast<int*>(delta + rows);
  k_deltas<<<blocks_for(std::max(16 * rows, n_turns), kDeltaThreads), kDeltaThreads, 0, stream>>>(
      delta, turns, n_turns, dout, out, rows, length, heads, hd);
  ANDREA_CUDA_LAUNCHED("k_attn_bwd (delta)");
  allow_shared(k_backward<kWidth>, kBytes);
  k_backward<kWidth><<<static_cast<unsigned>(blocks), 16 * kBackwardY<kWidth>, kBytes, stream>>>(
      dqkv, dout, qkv, lse, delta, turns, turns + n_turns - 1, length, heads, hd,
      1.0F / sqrtf(static_cast<float>(hd)), vectors);
  ANDREA_CUDA_LAUNCHED("k_attn_bwd");
}

}  // namespace

template <>
void attention_forward<float>(float* out, float* lse, const float* qkv, const AttentionShape& shape,
                              Absmax* /*absmax*/, cudaStream_t stream) {
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
                               Absmax* /*absmax*/, cudaStream_t stream) {
  const bool vectors = shape.hd % 4 == 0 && aligned16(dout, out, qkv);
  if (shape.hd <= 32)
    launch_backward<32>(dqkv, dout, out, qkv, lse, delta, shape, vectors, stream);
  else if (shape.hd <= 64)
    launch_backward<64>(dqkv, dout, out, qkv, lse, delta, shape, vectors, stream);
  else
    launch_backward<128>(dqkv, dout, out, qkv, lse, delta, shape, vectors, stream);
}

}  // namespace andrea::cuda
