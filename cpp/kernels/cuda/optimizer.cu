// The optimizer step: global norm, the decision, AdamW.
//   k_grad_norm_partial  sums of squares of fixed pieces, in double;
//   k_grad_norm_final    one block adds them in a fixed tree and decides about the step (fails closed);
//   k_adamw              m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2,
//                        p -= lr (m/c1 / (sqrt(v/c2) + eps) + wd p), also as act_t for the products.
// Whatever changes from step to step (learning rate, bias corrections, clip coefficient, loss scale) is read
// from device memory, so that a recorded step can be replayed. Bytes a parameter: 4 for the norm, 28 for
// AdamW and sizeof(act_t) for the compute weights. Element by element or in fixed trees: deterministic.
#include "kernels/cuda/absmax.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"

namespace andrea::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr std::int64_t kPiece = 4096;        // gradients a block takes at least
constexpr std::int64_t kMaxPartials = 1056;  // fixed, so that sums do not depend on the GPU

__global__ void __launch_bounds__(kThreads)
    k_norm_partial(double* partials, const float* grads, std::int64_t n, bool aligned) {
  __shared__ double shared[kWarps];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t groups = n / 4;
  double sum[4] = {};
#pragma unroll 4
  for (std::int64_t i = first; i < groups; i += stride) {
    float g[4];
    if (aligned) {
      load_floats<4>(g, grads + 4 * i);
    } else {
      for (int k = 0; k < 4; ++k) g[k] = grads[4 * i + k];
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) sum[k] += static_cast<double>(g[k]) * static_cast<double>(g[k]);
  }
  for (std::int64_t i = groups * 4 + first; i < n; i += stride)
    sum[0] += static_cast<double>(grads[i]) * static_cast<double>(grads[i]);
  const double total = block_sum<kWarps>((sum[0] + sum[1]) + (sum[2] + sum[3]), shared);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads)
    k_norm_final(StepStatus* status, const double* partials, std::int64_t n_partials, const float* row_losses,
                 std::int64_t n_rows, const StepControl* control) {
  __shared__ double shared[kWarps];
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < n_partials; i += kThreads) sum += partials[i];
  int finite = 1;
  for (std::int64_t i = threadIdx.x; i < n_rows; i += kThreads) finite &= isfinite(row_losses[i]) ? 1 : 0;
  sum = block_sum<kWarps>(sum, shared);
  finite = __syncthreads_and(finite);
  if (threadIdx.x != 0) return;

  const int interval = control->loss_scale_growth_interval;
  const float scale = status->loss_scale;
  const auto norm = static_cast<float>(sqrt(sum) / static_cast<double>(scale));
  const bool apply = finite != 0 && isfinite(norm);
  // Losses are computed unscaled: only an overflow of the gradients speaks against the scale.
  const bool halve = !apply && interval > 0 && finite != 0 && scale > 1.0F;
  const double clip =
      norm > control->clip_norm ? static_cast<double>(control->clip_norm) / static_cast<double>(norm) : 1.0;
  int good = apply && interval > 0 ? status->good_steps + 1 : 0;
  float next = halve ? 0.5F * scale : scale;
  if (good > 0 && good >= interval) {
    next = 2.0F * scale;
    good = 0;
  }
  status->grad_norm = norm;
  status->grad_multiplier = apply ? static_cast<float>(clip / static_cast<double>(scale)) : 0.0F;
  status->step_loss_scale = scale;
  status->apply = apply ? 1 : 0;
  status->scale_halved = halve ? 1 : 0;
  status->loss_scale = next;
  status->good_steps = good;
  status->fp8_saturated = 0;
}

struct Scale {
  float* grads;
  const StepStatus* status;
  template <int N>
  __device__ void run(std::int64_t at) const {
    const float factor = status->grad_multiplier;
    float g[N];
    load_floats<N>(g, grads + at);
#pragma unroll
    for (int i = 0; i < N; ++i) g[i] *= factor;
    store_floats<N>(grads + at, g);
  }
};

template <typename T>
struct AdamW {
  float* params;
  float* m;
  float* v;
  T* compute_weights;
  const float* grads;
  const StepControl* control;
  const StepStatus* status;
  std::int64_t n_decay;
  std::int64_t n_compute;

  template <int N>
  __device__ void run(std::int64_t at) const {
    if (status->apply == 0) return;
    const StepControl c = *control;
    const float factor = status->grad_multiplier;
    float p[N];
    float m1[N];
    float m2[N];
    float g[N];
    load_floats<N>(p, params + at);
    load_floats<N>(m1, m + at);
    load_floats<N>(m2, v + at);
    load_floats<N>(g, grads + at);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float grad = g[i] * factor;
      m1[i] = c.beta1 * m1[i] + (1.0F - c.beta1) * grad;
      m2[i] = c.beta2 * m2[i] + (1.0F - c.beta2) * grad * grad;
      const float m_hat = m1[i] / c.bias_correction1;
      const float v_hat = m2[i] / c.bias_correction2;
      const float decay = at + i < n_decay ? c.weight_decay : 0.0F;
      p[i] -= c.learning_rate * (m_hat / (sqrtf(v_hat) + c.eps) + decay * p[i]);
    }
    store_floats<N>(params + at, p);
    store_floats<N>(m + at, m1);
    store_floats<N>(v + at, m2);
    if (compute_weights == nullptr || at >= n_compute) return;
    if (at + N <= n_compute) {
      store_floats<N>(compute_weights + at, p);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (at + i < n_compute) compute_weights[at + i] = from_float<T>(p[i]);
    }
  }
};

}  // namespace

template <typename T>
std::int64_t CudaOps<T>::grad_norm_partials(std::int64_t n) const {
  const std::int64_t pieces = (n + kPiece - 1) / kPiece;
  return pieces < 1 ? 1 : (pieces < kMaxPartials ? pieces : kMaxPartials);
}

template <typename T>
void CudaOps<T>::k_grad_norm_partial(double* partials, const float* grads, std::int64_t n) {
  k_norm_partial<<<static_cast<unsigned>(grad_norm_partials(n)), kThreads, 0, stream_>>>(partials, grads, n,
                                                                                         aligned16(grads));
  ANDREA_CUDA_LAUNCHED("k_grad_norm_partial");
}

template <typename T>
void CudaOps<T>::k_grad_norm_final(StepStatus* status, const double* partials, std::int64_t n_partials,
                                   const float* row_losses, std::int64_t n_rows, const StepControl* control) {
  k_norm_final<<<1, kThreads, 0, stream_>>>(status, partials, n_partials, row_losses, n_rows, control);
  ANDREA_CUDA_LAUNCHED("k_grad_norm_final");
}

template <typename T>
void CudaOps<T>::k_grad_scale(float* grads, const StepStatus* status, std::int64_t n) {
  launch_elementwise<4>(Scale{grads, status}, n, aligned16(grads), stream_);
}

template <typename T>
void CudaOps<T>::k_adamw(float* params, float* m, float* v, act_t* compute_weights, const float* grads,
                         const StepControl* control, const StepStatus* status, std::int64_t n,
                         std::int64_t n_decay, std::int64_t n_compute) {
  const AdamW<T> body{params, m, v, typed(compute_weights), grads, control, status, n_decay, n_compute};
  const bool aligned = aligned16(params, m, v, grads, compute_weights);
  if (absmax_pieces_ == nullptr) return launch_elementwise<4>(body, n, aligned, stream_);
  launch_with_pieces(body, n, aligned, typed(compute_weights), n_compute, absmax_pieces_, stream_);
}

#define ANDREA_INSTANTIATE(T)                                                                         \
  template std::int64_t CudaOps<T>::grad_norm_partials(std::int64_t) const;                           \
  template void CudaOps<T>::k_grad_norm_partial(double*, const float*, std::int64_t);                 \
  template void CudaOps<T>::k_grad_norm_final(StepStatus*, const double*, std::int64_t, const float*, \
                                              std::int64_t, const StepControl*);                      \
  template void CudaOps<T>::k_grad_scale(float*, const StepStatus*, std::int64_t);                    \
  template void CudaOps<T>::k_adamw(float*, float*, float*, act_t*, const float*, const StepControl*, \
                                    const StepStatus*, std::int64_t, std::int64_t, std::int64_t);
ANDREA_INSTANTIATE(float)
ANDREA_INSTANTIATE(__half)
ANDREA_INSTANTIATE(__nv_bfloat16)
#undef ANDREA_INSTANTIATE

}  // namespace andrea::cuda
