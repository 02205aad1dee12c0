// k_loss_fwd / k_loss_bwd / k_loss_fwd_bwd: cross entropy over V of Vp columns, in nats.
//   loss = log(sum_v exp(x_v)) - x_target,   dx_v = (exp(x_v - log-sum-exp) - [v = target]) scale loss_scale.
// Columns V..Vp-1 are padding: outside the sum, gradient exactly zero. Nothing is saved: the fused form
// leaves the gradient in the logits' place. One block a row. Rows that fit are held in registers, so that
// memory is read once and each exponential is taken once; longer rows are read twice, the second time from
// cache. Maximum and sum are combined in a fixed tree: deterministic. rows * Vp elements read and written
// once.
#include <type_traits>

#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace andrea::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

struct MaxSum {
  float max;
  float sum;  // of exp(x - max)
};

__device__ __forceinline__ MaxSum combine(MaxSum a, MaxSum b) {
  const float max = fmaxf(a.max, b.max);
  if (max == -INFINITY) return {max, a.sum + b.sum};  // nothing seen yet
  return {max, a.sum * __expf(a.max - max) + b.sum * __expf(b.max - max)};
}

// log(sum exp) over the first V columns of a row; every thread of the block receives it.
template <typename T, int N>
__device__ float row_log_sum_exp(const T* row, std::int64_t V, MaxSum* shared) {
  MaxSum mine{-INFINITY, 0.0F};
  for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * N; at < V; at += kThreads * N) {
    float x[N];
    load_floats<N>(x, row + at);
    float max = mine.max;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (at + i >= V) x[i] = -INFINITY;
      max = fmaxf(max, x[i]);
    }
    // With everything at -inf so far the sum is of exp(-inf) = 0; NaN and +inf go through to the loss.
    const float base = max == -INFINITY ? 0.0F : max;
    float sum = mine.sum * __expf(mine.max - base);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += __expf(x[i] - base);
    mine = {max, sum};
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    mine = combine(mine,
                   {__shfl_xor_sync(kFullWarp, mine.max, step), __shfl_xor_sync(kFullWarp, mine.sum, step)});
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
  __syncthreads();
  MaxSum all = shared[0];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) all = combine(all, shared[w]);
  return all.max + logf(all.sum);
}

// The same with the row in registers: kThreads_ * kSteps * N >= Vp.
template <typename T, int N, int kThreads_, int kSteps>
__global__ void __launch_bounds__(kThreads_)
    k_loss_registers(float* losses, T* dlogits, const T* logits, const std::int32_t* targets, float scale,
                     const StepStatus* status, int V, int Vp) {
  constexpr int kRowWarps = kThreads_ / 32;
  __shared__ float maxima[kRowWarps];
  __shared__ float sums[kRowWarps];
  const std::int64_t row = blockIdx.x;
  const T* const in = logits + row * Vp;
  float x[kSteps][N];
  float max = -INFINITY;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int at = (s * kThreads_ + static_cast<int>(threadIdx.x)) * N;
    if (at < V) load_floats<N>(x[s], in + at);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (at + i >= V) x[s][i] = -INFINITY;
      max = fmaxf(max, x[s][i]);
    }
  }
  const int target = targets[row];
  const float target_logit = to_float(in[target]);  // every thread reads it before any overwrites it
  max = warp_max(max);
  if (threadIdx.x % 32 == 0) maxima[threadIdx.x / 32] = max;
  __syncthreads();
  max = maxima[0];
#pragma unroll
  for (int w = 1; w < kRowWarps; ++w) max = fmaxf(max, maxima[w]);
  float sum = 0.0F;
#pragma unroll
  for (int s = 0; s < kSteps; ++s)
#pragma unroll
    for (int i = 0; i < N; ++i) {
      x[s][i] = __expf(x[s][i] - max);
      sum += x[s][i];
    }
  sum = block_sum<kRowWarps>(sum, sums);
  if (losses != nullptr && threadIdx.x == 0) losses[row] = max + logf(sum) - target_logit;
  if (dlogits == nullptr) return;
  const float factor = scale * status->loss_scale;
  const float inverse = factor / sum;
  T* const out = dlogits + row * Vp;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const int at = (s * kThreads_ + static_cast<int>(threadIdx.x)) * N;
    if (at >= Vp) break;
#pragma unroll
    for (int i = 0; i < N; ++i) x[s][i] = x[s][i] * inverse - (at + i == target ? factor : 0.0F);
    store_floats<N>(out + at, x[s]);
  }
}

// Writes losses if not null, dlogits if not null (which may be logits).
template <typename T, int N>
__global__ void __launch_bounds__(kThreads)
    k_loss(float* losses, T* dlogits, const T* logits, const std::int32_t* targets, float scale,
           const StepStatus* status, std::int64_t V, std::int64_t Vp) {
  __shared__ MaxSum shared[kWarps];
  const std::int64_t row = blockIdx.x;
  const T* const in = logits + row * Vp;
  const std::int64_t target = targets[row];
  const float log_sum = row_log_sum_exp<T, N>(in, V, shared);
  if (losses != nullptr && threadIdx.x == 0) losses[row] = log_sum - to_float(in[target]);
  if (dlogits == nullptr) return;
  __syncthreads();  // the target's logit is read before it is overwritten
  const float factor = scale * status->loss_scale;
  T* const out = dlogits + row * Vp;
  for (std::int64_t at = static_cast<std::int64_t>(threadIdx.x) * N; at < Vp; at += kThreads * N) {
    float x[N];
    load_floats<N>(x, in + at);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float p = __expf(x[i] - log_sum) - (at + i == target ? 1.0F : 0.0F);
      x[i] = at + i < V ? p * factor : 0.0F;
    }
    store_floats<N>(out + at, x);
  }
}

template <typename T>
void loss(float* losses, T* dlogits, const T* logits, const std::int32_t* targets, float scale,
          const StepStatus* status, std::int64_t rows, std::int64_t V, std::int64_t Vp, cudaStream_t stream) {
  if (rows == 0) return;
  constexpr int kN = kVec<T>;
  const auto blocks = static_cast<unsigned>(rows);
  const bool vectors = Vp % kN == 0 && aligned16(dlogits, logits);
  const auto in_registers = [&](auto threads, auto steps) {
    constexpr int kRowThreads = decltype(threads)::value;
    k_loss_registers<T, kN, kRowThreads, decltype(steps)::value><<<blocks, kRowThreads, 0, stream>>>(
        losses, dlogits, logits, targets, scale, status, static_cast<int>(V), static_cast<int>(Vp));
  };
  if (vectors && Vp <= 256 * 3 * kN)
    in_registers(std::integral_constant<int, 256>{}, std::integral_constant<int, 3>{});
  else if (vectors && Vp <= 256 * 5 * kN)
    in_registers(std::integral_constant<int, 256>{}, std::integral_constant<int, 5>{});
  else if (vectors && Vp <= 512 * 5 * kN)
    in_registers(std::integral_constant<int, 512>{}, std::integral_constant<int, 5>{});
  else if (vectors)
    k_loss<T, kN><<<blocks, kThreads, 0, stream>>>(losses, dlogits, logits, targets, scale, status, V, Vp);
  else
    k_loss<T, 1><<<blocks, kThreads, 0, stream>>>(losses, dlogits, logits, targets, scale, status, V, Vp);
  ANDREA_CUDA_LAUNCHED("k_loss");
}

__global__ void __launch_bounds__(kThreads)
    k_row_mean(float* row_losses, const float* losses, std::int64_t context) {
  __shared__ double shared[kWarps];
  const float* const in = losses + static_cast<std::int64_t>(blockIdx.x) * context;
  double sum = 0.0;
  for (std::int64_t t = threadIdx.x; t < context; t += kThreads) sum += static_cast<double>(in[t]);
  sum = block_sum<kWarps>(sum, shared);
  if (threadIdx.x == 0) row_losses[blockIdx.x] = static_cast<float>(sum / static_cast<double>(context));
}

}  // namespace

template <typename T>
void CudaOps<T>::k_loss_fwd(float* losses, const act_t* logits, const std::int32_t* targets,
                            std::int64_t rows, std::int64_t V, std::int64_t Vp) {
  loss<T>(losses, nullptr, typed(logits), targets, 0.0F, nullptr, rows, V, Vp, stream_);
}

template <typename T>
void CudaOps<T>::k_loss_bwd(act_t* dlogits, const act_t* logits, const std::int32_t* targets, float scale,
                            const StepStatus* status, std::int64_t rows, std::int64_t V, std::int64_t Vp) {
  loss<T>(nullptr, typed(dlogits), typed(logits), targets, scale, status, rows, V, Vp, stream_);
}

template <typename T>
void CudaOps<T>::k_loss_fwd_bwd(float* losses, act_t* logits, const std::int32_t* targets, float scale,
                                const StepStatus* status, std::int64_t rows, std::int64_t V,
                                std::int64_t Vp) {
  loss<T>(losses, typed(logits), typed(logits), targets, scale, status, rows, V, Vp, stream_);
}

template <typename T>
void CudaOps<T>::k_row_loss(float* row_losses, const float* losses, std::int64_t B, std::int64_t T_) {
  if (B == 0) return;
  k_row_mean<<<static_cast<unsigned>(B), kThreads, 0, stream_>>>(row_losses, losses, T_);
  ANDREA_CUDA_LAUNCHED("k_row_loss");
}

#define ANDREA_INSTANTIATE(T)                                                                               \
  template void CudaOps<T>::k_loss_fwd(float*, const act_t*, const std::int32_t*, std::int64_t,             \
                                       std::int64_t, std::int64_t);                                         \
  template void CudaOps<T>::k_loss_bwd(act_t*, const act_t*, const std::int32_t*, float, const StepStatus*, \
                                       std::int64_t, std::int64_t, std::int64_t);                           \
  template void CudaOps<T>::k_loss_fwd_bwd(float*, act_t*, const std::int32_t*, float, const StepStatus*,   \
                                           std::int64_t, std::int64_t, std::int64_t);                       \
  template void CudaOps<T>::k_row_loss(float*, const float*, std::int64_t, std::int64_t);
ANDREA_INSTANTIATE(float)
ANDREA_INSTANTIATE(__half)
ANDREA_INSTANTIATE(__nv_bfloat16)
#undef ANDREA_INSTANTIATE

}  // namespace andrea::cuda
