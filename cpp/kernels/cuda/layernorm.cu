// k_layernorm_fwd / k_layernorm_bwd: y = (x - mean) rstd gamma + beta, rstd = 1 / sqrt(var + 1e-5).
// With n = (x - mean) rstd and g = dy gamma:
//   dx = rstd (g - mean(g) - n mean(g n)),  dgamma = sum over rows of dy n,  dbeta = sum over rows of dy.
// Saved: mean and rstd, float32 [rows]. The variance is taken around the mean in a second pass over
// registers, so that large means do not cost accuracy.
// A team of 1 to 16 warps holds a row, 8 elements a lane: few registers, so that many warps hide each other's
// waiting. Backward, each block adds dgamma and dbeta over its own fixed rows in registers, and k_finish adds
// the blocks in order: deterministic. Memory-bound: forward 2, backward 3 (4 with add_to_dx) passes over rows
// * d elements.
#include "engine/errors.h"
#include "kernels/cuda/absmax.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace andrea::cuda {
namespace {

constexpr float kEps = 1e-5F;
constexpr int kPerLane = 8;            // elements of a row that one lane holds
constexpr std::int64_t kBlocks = 264;  // of the backward pass: fixed, so that sums do not depend on the GPU
constexpr int kMaxTeam = 16;
constexpr std::int64_t kMaxWidth = 32 * kPerLane * kMaxTeam;

// Warps of a block: a multiple of the team's.
template <int Team>
constexpr int kWarps = 12 % Team == 0 ? 12 : 16;

// Sums of x and y over the `Team` warps that share a row.
template <int Team>
__device__ __forceinline__ float2 team_sum(float x, float y, float2* shared) {
  float2 sum = make_float2(warp_sum(x), warp_sum(y));
  if constexpr (Team > 1) {
    const unsigned warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) shared[warp] = sum;
    // A barrier of the team's own (0 is __syncthreads): teams need not wait for each other.
    asm volatile("bar.sync %0, %1;" ::"r"(1 + warp / Team), "n"(32 * Team) : "memory");
    sum = make_float2(0.0F, 0.0F);
#pragma unroll
    for (unsigned w = 0; w < Team; ++w) {
      const float2 part = shared[warp / Team * Team + w];
      sum.x += part.x;
      sum.y += part.y;
    }
  }
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
__global__ void __launch_bounds__(32 * kWarps<Team>)
    k_forward(T* y, float* mean, float* rstd, const T* x, const float* gamma, const float* beta,
              std::int64_t rows, int d, Absmax* absmax) {
  __shared__ float2 shared[2][kWarps<Team>];
  constexpr int kTeams = kWarps<Team> / Team;
  constexpr int kSteps = kPerLane / N;
  const int lane = static_cast<int>(threadIdx.x % (32 * Team));
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kTeams + threadIdx.x / (32 * Team);
  const int width = row < rows ? d : 0;  // a whole team may have no row
  Largest<T> largest{absmax};
  float v[kSteps][N];
  float sum = 0.0F;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int column = (s * 32 * Team + lane) * N;
    if (column >= width) continue;
    load_floats<N>(v[s], x + row * d + column);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += v[s][i];
  }
  const float mu = team_sum<Team>(sum, 0.0F, shared[0]).x / static_cast<float>(d);
  float squares = 0.0F;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    if ((s * 32 * Team + lane) * N >= width) continue;
#pragma unroll
    for (int i = 0; i < N; ++i) squares += (v[s][i] - mu) * (v[s][i] - mu);
  }
  const float r = rsqrtf(team_sum<Team>(squares, 0.0F, shared[1]).x / static_cast<float>(d) + kEps);
  if (lane == 0 && row < rows) {
    mean[row] = mu;
    rstd[row] = r;
  }
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int column = (s * 32 * Team + lane) * N;
    if (column >= width) continue;
    float scale[N];
    float shift[N];
    load_parameters<N>(scale, gamma + column);
    load_parameters<N>(shift, beta + column);
#pragma unroll
    for (int i = 0; i < N; ++i) v[s][i] = (v[s][i] - mu) * r * scale[i] + shift[i];
    largest.see(v[s]);
    store_floats<N>(y + row * d + column, v[s]);
  }
  largest.publish();
}

// partials [blocks, 2, d]: sums of dy n and of dy over the rows of a block.
template <typename T, int N, int Team>
__global__ void __launch_bounds__(32 * kWarps<Team>, 2)
    k_backward(T* dx, float* partials, const T* dy, const T* x, const float* gamma, const float* mean,
               const float* rstd, std::int64_t rows, int d, bool add_to_dx, Absmax* absmax) {
  __shared__ float2 shared[2][kWarps<Team>];
  constexpr int kSteps = kPerLane / N;
  constexpr int kTeams = kWarps<Team> / Team;
  constexpr int kColumns = 32 * Team * kPerLane;
  const int lane = static_cast<int>(threadIdx.x % (32 * Team));
  const int team = static_cast<int>(threadIdx.x / (32 * Team));
  float scale[kSteps][N];
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int column = (s * 32 * Team + lane) * N;
    if (column < d) load_parameters<N>(scale[s], gamma + column);
  }
  float dgamma[kSteps][N] = {};
  float dbeta[kSteps][N] = {};
  Largest<T> largest{absmax};
  int turn = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kTeams;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kTeams + team; row < rows; row += stride) {
    const float mu = mean[row];
    const float r = rstd[row];
    // All of the row's loads are issued before the first use, also those that are used last.
    Pack<T, N> before[kSteps];
    float n[kSteps][N];
    float g[kSteps][N];
    float sum_g = 0.0F;
    float sum_gn = 0.0F;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int column = (s * 32 * Team + lane) * N;
      if (column >= d) continue;
      const std::int64_t at = row * d + column;
      if (add_to_dx) before[s] = *reinterpret_cast<const Pack<T, N>*>(dx + at);
      load_floats<N>(n[s], x + at);
      load_floats<N>(g[s], dy + at);
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if ((s * 32 * Team + lane) * N >= d) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        n[s][i] = (n[s][i] - mu) * r;
        dgamma[s][i] += g[s][i] * n[s][i];
        dbeta[s][i] += g[s][i];
        g[s][i] *= scale[s][i];
        sum_g += g[s][i];
        sum_gn += g[s][i] * n[s][i];
      }
    }
    const float2 sums = team_sum<Team>(sum_g, sum_gn, shared[turn]);
    const float mean_g = sums.x / static_cast<float>(d);
    const float mean_gn = sums.y / static_cast<float>(d);
    turn ^= 1;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int column = (s * 32 * Team + lane) * N;
      if (column >= d) continue;
      float out[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float own = r * (g[s][i] - mean_g - n[s][i] * mean_gn);
        out[i] = add_to_dx ? to_float(before[s].v[i]) + own : own;
      }
      largest.see(out);
      store_floats<N>(dx + row * d + column, out);
    }
  }
  largest.publish();
  // The teams of the block, in order, by way of shared memory.
  __shared__ float columns[kTeams * kColumns];
#pragma unroll
  for (int which = 0; which < 2; ++which) {
    float (&mine)[kSteps][N] = which == 0 ? dgamma : dbeta;
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
      for (int i = 0; i < N; ++i) columns[team * kColumns + (s * 32 * Team + lane) * N + i] = mine[s][i];
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < d; c += 32 * kWarps<Team>) {
      float sum = 0.0F;
#pragma unroll
      for (int t = 0; t < kTeams; ++t) sum += columns[t * kColumns + c];
      partials[(static_cast<std::int64_t>(blockIdx.x) * 2 + which) * d + c] = sum;
    }
  }
}

// dgamma and dbeta from the blocks' partials: a block takes 32 columns, its 32 warps every 32nd partial, and
// the warps are added in order.
__global__ void __launch_bounds__(1024)
    k_finish(float* dgamma, float* dbeta, const float* partials, int blocks, int d, bool accumulate) {
  __shared__ float shared[32][33];
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int column = static_cast<int>(blockIdx.x) * 32 + lane;  // of [2 d]
  float sum = 0.0F;
  if (column < 2 * d) {
#pragma unroll
    for (int i = 0; i < (static_cast<int>(kBlocks) + 31) / 32; ++i) {
      const int b = i * 32 + warp;
      if (b < blocks) sum += partials[static_cast<std::int64_t>(b) * 2 * d + column];
    }
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= 2 * d) return;
  sum = 0.0F;
#pragma unroll
  for (int w = 0; w < 32; ++w) sum += shared[w][lane];
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
  const std::int64_t warps = (d + 32 * kPerLane - 1) / (32 * kPerLane);
  const auto team = [&](auto size) { launch(size, std::integral_constant<int, kN>{}); };
  if (!aligned || d % kN != 0)
    launch(std::integral_constant<int, kMaxTeam>{}, std::integral_constant<int, 1>{});
  else if (warps <= 1)
    team(std::integral_constant<int, 1>{});
  else if (warps <= 2)
    team(std::integral_constant<int, 2>{});
  else if (warps <= 3)
    team(std::integral_constant<int, 3>{});
  else if (warps <= 4)
    team(std::integral_constant<int, 4>{});
  else if (warps <= 6)
    team(std::integral_constant<int, 6>{});
  else if (warps <= 8)
    team(std::integral_constant<int, 8>{});
  else
    team(std::integral_constant<int, kMaxTeam>{});
}

}  // namespace

std::size_t layernorm_bwd_scratch(std::int64_t d) { return static_cast<std::size_t>(kBlocks * 2 * d) * 4; }

template <typename T>
void CudaOps<T>::k_layernorm_fwd(act_t* y, float* mean, float* rstd, const act_t* x, const float* gamma,
                                 const float* beta, std::int64_t rows, std::int64_t d) {
  if (rows == 0) return;
  choose<T>(d, aligned16(y, x, gamma, beta), [&](auto team, auto vec) {
    constexpr int kTeam = decltype(team)::value;
    constexpr int kN = decltype(vec)::value;
    k_forward<T, kN, kTeam><<<blocks_for(rows, kWarps<kTeam> / kTeam), 32 * kWarps<kTeam>, 0, stream_>>>(
        typed(y), mean, rstd, typed(x), gamma, beta, rows, static_cast<int>(d), absmax_of(y));
  });
  ANDREA_CUDA_LAUNCHED("k_layernorm_fwd");
}

template <typename T>
void CudaOps<T>::k_layernorm_bwd(act_t* dx, float* dgamma, float* dbeta, const act_t* dy, const act_t* x,
                                 const float* gamma, const float* mean, const float* rstd, std::int64_t rows,
                                 std::int64_t d, bool add_to_dx, bool accumulate) {
  if (rows == 0) return;
  auto* const partials = static_cast<float*>(scratch(layernorm_bwd_scratch(d)));
  std::int64_t blocks = 0;
  choose<T>(d, aligned16(dx, dy, x, gamma), [&](auto team, auto vec) {
    constexpr int kTeam = decltype(team)::value;
    constexpr int kN = decltype(vec)::value;
    constexpr int kTeams = kWarps<kTeam> / kTeam;
    const std::int64_t wanted = (rows + kTeams - 1) / kTeams;
    blocks = wanted < kBlocks ? wanted : kBlocks;
    k_backward<T, kN, kTeam><<<static_cast<unsigned>(blocks), 32 * kWarps<kTeam>, 0, stream_>>>(
        typed(dx), partials, typed(dy), typed(x), gamma, mean, rstd, rows, static_cast<int>(d), add_to_dx,
        absmax_of(dx));
  });
  ANDREA_CUDA_LAUNCHED("k_layernorm_bwd");
  k_finish<<<blocks_for(2 * d, 32), 1024, 0, stream_>>>(dgamma, dbeta, partials, static_cast<int>(blocks),
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
