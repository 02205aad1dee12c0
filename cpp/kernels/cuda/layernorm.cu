// k_layernorm_fwd / k_layernorm_bwd: y = (x - mean) rstd gamma + beta, rstd = 1 / sqrt(var + 1e-5).
// With n = (x - mean) rstd and g = dy gamma:
//   dx = rstd (g - mean(g) - n mean(g n)),  dgamma = sum over rows of dy n,  dbeta = sum over rows of dy.
// Saved: mean and rstd, float32 [rows]. The variance is taken around the mean in a second pass over
// registers, so that large means do not cost accuracy.
// A team of 1, 2, 4 or 8 warps holds a row in registers (16 elements a lane). Backward, each block adds
// dgamma and dbeta over its own fixed rows in registers, and k_finish adds the blocks in order:
// deterministic. Memory-bound: forward 2, backward 3 (4 with add_to_dx) passes over rows * d elements.
#include "engine/errors.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace andrea::cuda {
namespace {

constexpr float kEps = 1e-5F;
constexpr int kPerLane = 16;           // elements of a row that one lane holds
constexpr int kWarps = 8;              // a block
constexpr std::int64_t kBlocks = 264;  // of the backward pass: fixed, so that sums do not depend on the GPU
constexpr std::int64_t kMaxWidth = 32 * kPerLane * kWarps;

// Sum over the `Team` warps that share a row. `shared` has kWarps elements a use, alternated by the caller.
template <int Team>
__device__ __forceinline__ float team_sum(float x, float* shared) {
  x = warp_sum(x);
  if (Team == 1) return x;
  const unsigned warp = threadIdx.x / 32;
  if (threadIdx.x % 32 == 0) shared[warp] = x;
  // A barrier of the team's own (0 is __syncthreads): teams need not wait for each other.
  asm volatile("bar.sync %0, %1;" ::"r"(1 + warp / Team), "n"(32 * Team) : "memory");
  float sum = 0.0F;
#pragma unroll
  for (unsigned w = 0; w < Team; ++w) sum += shared[warp / Team * Team + w];
  return sum;
}

template <int N>
__device__ __forceinline__ void load_parameters(float (&out)[N], const float* from) {
  if constexpr (N == 1) {
    out[0] = __ldg(from);
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 four = __ldg(reinterpret_cast<const float4*>(from + i));
      out[i] = four.x;
      out[i + 1] = four.y;
      out[i + 2] = four.z;
      out[i + 3] = four.w;
    }
  }
}

template <typename T, int N, int Team>
__global__ void __launch_bounds__(32 * kWarps)
    k_forward(T* y, float* mean, float* rstd, const T* x, const float* gamma, const float* beta,
              std::int64_t rows, int d) {
  __shared__ float shared[2][kWarps];
  const int lane = static_cast<int>(threadIdx.x % (32 * Team));
  const std::int64_t row =
      static_cast<std::int64_t>(blockIdx.x) * (kWarps / Team) + threadIdx.x / (32 * Team);
  const bool inside = row < rows;  // the same for a whole team
  constexpr int kSteps = kPerLane / N;
  float v[kSteps][N];
  float sum = 0.0F;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int column = (s * 32 * Team + lane) * N;
    if (inside && column < d) {
      load_floats<N>(v[s], x + row * d + column);
#pragma unroll
      for (int i = 0; i < N; ++i) sum += v[s][i];
    }
  }
  const float mu = team_sum<Team>(sum, shared[0]) / static_cast<float>(d);
  float squares = 0.0F;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int column = (s * 32 * Team + lane) * N;
    if (inside && column < d) {
#pragma unroll
      for (int i = 0; i < N; ++i) squares += (v[s][i] - mu) * (v[s][i] - mu);
    }
  }
  const float r = rsqrtf(team_sum<Team>(squares, shared[1]) / static_cast<float>(d) + kEps);
  if (!inside) return;
  if (lane == 0) {
    mean[row] = mu;
    rstd[row] = r;
  }
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int column = (s * 32 * Team + lane) * N;
    if (column < d) {
      float scale[N];
      float shift[N];
      load_parameters<N>(scale, gamma + column);
      load_parameters<N>(shift, beta + column);
#pragma unroll
      for (int i = 0; i < N; ++i) v[s][i] = (v[s][i] - mu) * r * scale[i] + shift[i];
      store_floats<N>(y + row * d + column, v[s]);
    }
  }
}

// partials [kBlocks, 2, d]: sums of dy n and of dy over the rows of a block.
template <typename T, int N, int Team>
__global__ void __launch_bounds__(32 * kWarps, N == 1 ? 1 : 2)
    k_backward(T* dx, float* partials, const T* dy, const T* x, const float* gamma, const float* mean,
               const float* rstd, std::int64_t rows, int d, bool add_to_dx) {
  __shared__ float shared[2][2][kWarps];
  constexpr int kSteps = kPerLane / N;
  constexpr int kTeams = kWarps / Team;
  const int lane = static_cast<int>(threadIdx.x % (32 * Team));
  const int team = static_cast<int>(threadIdx.x / (32 * Team));
  // Rows of 16-bit elements are loaded one turn ahead: the next row's loads overlap this one's sums.
  constexpr bool kAhead = sizeof(T) == 2;
  struct Row {
    Pack<T, N> x[kSteps], dy[kSteps], dx[kSteps];
    float mean, rstd;
  };
  const auto load = [&](Row& to, std::int64_t row) {
    if (row >= rows) return;
    to.mean = mean[row];
    to.rstd = rstd[row];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int column = (s * 32 * Team + lane) * N;
      if (column >= d) continue;
      const std::int64_t at = row * d + column;
      to.x[s] = *reinterpret_cast<const Pack<T, N>*>(x + at);
      to.dy[s] = *reinterpret_cast<const Pack<T, N>*>(dy + at);
      if (add_to_dx) to.dx[s] = *reinterpret_cast<const Pack<T, N>*>(dx + at);
    }
  };
  float dgamma[kSteps][N] = {};
  float dbeta[kSteps][N] = {};
  int turn = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kTeams;
  Row now;
  std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kTeams + team;
  load(now, row);
  for (; row < rows; row += stride) {
    Row next;
    if (kAhead) load(next, row + stride);
    float sum_g = 0.0F;
    float sum_gn = 0.0F;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int column = (s * 32 * Team + lane) * N;
      if (column >= d) continue;
      float scale[N];
      load_parameters<N>(scale, gamma + column);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float n = (to_float(now.x[s].v[i]) - now.mean) * now.rstd;
        const float dy_i = to_float(now.dy[s].v[i]);
        dgamma[s][i] += dy_i * n;
        dbeta[s][i] += dy_i;
        sum_g += dy_i * scale[i];
        sum_gn += dy_i * scale[i] * n;
      }
    }
    const float mean_g = team_sum<Team>(sum_g, shared[turn][0]) / static_cast<float>(d);
    const float mean_gn = team_sum<Team>(sum_gn, shared[turn][1]) / static_cast<float>(d);
    turn ^= 1;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int column = (s * 32 * Team + lane) * N;
      if (column >= d) continue;
      float scale[N];
      load_parameters<N>(scale, gamma + column);
      float out[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float n = (to_float(now.x[s].v[i]) - now.mean) * now.rstd;
        const float own = now.rstd * (to_float(now.dy[s].v[i]) * scale[i] - mean_g - n * mean_gn);
        out[i] = add_to_dx ? to_float(now.dx[s].v[i]) + own : own;
      }
      store_floats<N>(dx + row * d + column, out);
    }
    if (kAhead)
      now = next;
    else
      load(now, row + stride);
  }
  // The teams of the block, in order, by way of shared memory.
  __shared__ float columns[32 * kPerLane * kWarps];
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    float (&mine)[kSteps][N] = which == 0 ? dgamma : dbeta;
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
      for (int i = 0; i < N; ++i)
        columns[team * (32 * Team * kPerLane) + (s * 32 * Team + lane) * N + i] = mine[s][i];
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < d; c += 32 * kWarps) {
      float sum = 0.0F;
#pragma unroll
      for (int t = 0; t < kTeams; ++t) sum += columns[t * (32 * Team * kPerLane) + c];
      partials[(static_cast<std::int64_t>(blockIdx.x) * 2 + which) * d + c] = sum;
    }
  }
}

// dgamma and dbeta from the blocks' partials: a block takes 32 columns, its 8 warps every 8th partial, and
// the warps are added in order.
__global__ void __launch_bounds__(256)
    k_finish(float* dgamma, float* dbeta, const float* partials, int blocks, int d, bool accumulate) {
  __shared__ float shared[8][33];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int column = static_cast<int>(blockIdx.x) * 32 + lane;  // of [2 d]
  float sum = 0.0F;
  if (column < 2 * d) {
#pragma unroll 8
    for (int b = warp; b < blocks; b += 8) sum += partials[static_cast<std::int64_t>(b) * 2 * d + column];
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= 2 * d) return;
  sum = 0.0F;
#pragma unroll
  for (int w = 0; w < 8; ++w) sum += shared[w][lane];
  float* const out = column < d ? dgamma + column : dbeta + (column - d);
  *out = accumulate ? *out + sum : sum;
}

// Calls launch(team constant, vector constant) for the smallest team that holds a row.
template <typename T, typename Launch>
void choose(std::int64_t d, bool aligned, const Launch& launch) {
  if (d > kMaxWidth)
    throw ConfigError("d_model " + std::to_string(d) + ": the CUDA LayerNorm takes at most " +
                      std::to_string(kMaxWidth));
  constexpr int kN = kVec<T>;
  const std::int64_t one = 32 * kPerLane;
  if (!aligned || d % kN != 0)
    launch(std::integral_constant<int, 8>{}, std::integral_constant<int, 1>{});
  else if (d <= one)
    launch(std::integral_constant<int, 1>{}, std::integral_constant<int, kN>{});
  else if (d <= 2 * one)
    launch(std::integral_constant<int, 2>{}, std::integral_constant<int, kN>{});
  else if (d <= 4 * one)
    launch(std::integral_constant<int, 4>{}, std::integral_constant<int, kN>{});
  else
    launch(std::integral_constant<int, 8>{}, std::integral_constant<int, kN>{});
}

}  // namespace

std::size_t layernorm_bwd_scratch(std::int64_t d) { return static_cast<std::size_t>(kBlocks * 2 * d) * 4; }

template <typename T>
void CudaOps<T>::k_layernorm_fwd(act_t* y, float* mean, float* rstd, const act_t* x, const float* gamma,
                                 const float* beta, std::int64_t rows, std::int64_t d) {
  settle(y, rows * d);
  if (rows == 0) return;
  choose<T>(d, aligned16(y, x, gamma, beta), [&](auto team, auto vec) {
    constexpr int kTeam = decltype(team)::value;
    constexpr int kN = decltype(vec)::value;
    k_forward<T, kN, kTeam><<<blocks_for(rows, kWarps / kTeam), 32 * kWarps, 0, stream_>>>(
        typed(y), mean, rstd, typed(x), gamma, beta, rows, static_cast<int>(d));
  });
  ANDREA_CUDA_LAUNCHED("k_layernorm_fwd");
}

template <typename T>
void CudaOps<T>::k_layernorm_bwd(act_t* dx, float* dgamma, float* dbeta, const act_t* dy, const act_t* x,
                                 const float* gamma, const float* mean, const float* rstd, std::int64_t rows,
                                 std::int64_t d, bool add_to_dx, bool accumulate) {
  settle(dx, rows * d);
  if (rows == 0) return;
  auto* const partials = static_cast<float*>(scratch(layernorm_bwd_scratch(d)));
  std::int64_t blocks = 0;
  choose<T>(d, aligned16(dx, dy, x, gamma), [&](auto team, auto vec) {
    constexpr int kTeam = decltype(team)::value;
    constexpr int kN = decltype(vec)::value;
    const std::int64_t wanted = (rows + kWarps / kTeam - 1) / (kWarps / kTeam);
    blocks = wanted < kBlocks ? wanted : kBlocks;
    k_backward<T, kN, kTeam><<<static_cast<unsigned>(blocks), 32 * kWarps, 0, stream_>>>(
        typed(dx), partials, typed(dy), typed(x), gamma, mean, rstd, rows, static_cast<int>(d), add_to_dx);
  });
  ANDREA_CUDA_LAUNCHED("k_layernorm_bwd");
  k_finish<<<blocks_for(2 * d, 32), 256, 0, stream_>>>(dgamma, dbeta, partials, static_cast<int>(blocks),
                                                       static_cast<int>(d), accumulate);
  ANDREA_CUDA_LAUNCHED("k_layernorm_bwd (finish)");
}

#define ANDREA_INSTANTIATE(T)                                                                       \
  template void CudaOps<T>::k_layernorm_fwd(act_t*, float*, float*, const act_t*, const float*,     \
                                            const float*, std::int64_t, std::int64_t);              \
  template void CudaOps<T>::k_layernorm_bwd(act_t*, float*, float*, const act_t*, const act_t*,     \
                                            const float*, const float*, const float*, std::int64_t, \
                                            std::int64_t, bool, bool);
ANDREA_INSTANTIATE(float)
ANDREA_INSTANTIATE(__half)
ANDREA_INSTANTIATE(__nv_bfloat16)
#undef ANDREA_INSTANTIATE

}  // namespace andrea::cuda
