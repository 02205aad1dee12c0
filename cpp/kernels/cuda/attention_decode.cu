// k_attn_decode_fwd: one new token a sequence against the cache of keys and values [2, B, T_max, H, hd].
// A block owns one (sequence, head): it writes the token's K and V at `position`, then scores positions
// 0..position in shared memory, takes the softmax, and sums the values, each thread group its own fixed share
// of the positions, the groups in order: deterministic. Reads 2 (position + 1) hd elements.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector.cuh"

namespace andrea::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    k_decode(T* out, T* cache, const T* qkv, const std::int32_t* position, std::int64_t B, std::int64_t T_max,
             std::int64_t H, int hd) {
  extern __shared__ float scores[];  // [T_max]
  __shared__ float query[kMaxHeadDim];
  __shared__ float shared[kWarps];
  __shared__ float sums[kThreads];
  const std::int64_t b = blockIdx.y;
  const std::int64_t h = blockIdx.x;
  const int at = *position;
  const int thread = static_cast<int>(threadIdx.x);
  T* const keys = cache + (b * T_max * H + h) * hd;  // position t: + t H hd
  T* const values = keys + B * T_max * H * hd;
  const std::int64_t step = H * hd;
  const T* const token = qkv + (b * 3 * H + h) * hd;
  const float scale = rsqrtf(static_cast<float>(hd));
  for (int c = thread; c < hd; c += kThreads) {
    query[c] = to_float(token[c]) * scale;
    keys[at * step + c] = token[step + c];
    values[at * step + c] = token[2 * step + c];
  }
  __syncthreads();

  float max = -INFINITY;
  for (int t = thread; t <= at; t += kThreads) {
    const T* const key = keys + t * step;
    float score = 0.0F;
    for (int c = 0; c < hd; ++c) score += query[c] * to_float(key[c]);
    scores[t] = score;
    max = fmaxf(max, score);
  }
  max = warp_max(max);
  if (thread % 32 == 0) shared[thread / 32] = max;
  __syncthreads();
  max = shared[0];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) max = fmaxf(max, shared[w]);
  float sum = 0.0F;
  for (int t = thread; t <= at; t += kThreads) {
    const float p = expf(scores[t] - max);
    scores[t] = p;
    sum += p;
  }
  sum = block_sum<kWarps>(sum, shared);  // its barriers also publish the scores

  const int columns = hd <= 32 ? 32 : hd <= 64 ? 64 : 128;  // threads of a group
  const int groups = kThreads / columns;
  const int column = thread % columns;
  float value = 0.0F;
  if (column < hd)
    for (int t = thread / columns; t <= at; t += groups)
      value += scores[t] * to_float(values[t * step + column]);
  sums[thread] = value;
  __syncthreads();
  if (thread < hd) {
    for (int g = 1; g < groups; ++g) value += sums[g * columns + column];
    out[(b * H + h) * hd + column] = from_float<T>(value / sum);
  }
}

}  // namespace

template <typename T>
void attention_decode(T* out, T* cache, const T* qkv, const std::int32_t* position, std::int64_t B,
                      std::int64_t T_max, std::int64_t H, std::int64_t hd, cudaStream_t stream) {
  if (B == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(T_max) * sizeof(float);
  if (bytes > 32U << 10)
    ANDREA_CUDA_CHECK(cudaFuncSetAttribute(k_decode<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(bytes)));
  k_decode<T><<<dim3(static_cast<unsigned>(H), static_cast<unsigned>(B)), kThreads, bytes, stream>>>(
      out, cache, qkv, position, B, T_max, H, static_cast<int>(hd));
  ANDREA_CUDA_LAUNCHED("k_attn_decode_fwd");
}

template void attention_decode<float>(float*, float*, const float*, const std::int32_t*, std::int64_t,
                                      std::int64_t, std::int64_t, std::int64_t, cudaStream_t);
template void attention_decode<__half>(__half*, __half*, const __half*, const std::int32_t*, std::int64_t,
                                       std::int64_t, std::int64_t, std::int64_t, cudaStream_t);
template void attention_decode<__nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16*, const __nv_bfloat16*,
                                              const std::int32_t*, std::int64_t, std::int64_t, std::int64_t,
                                              std::int64_t, cudaStream_t);

}  // namespace andrea::cuda
