// Largest magnitudes for FP8: of a tensor at rest, of the weights from AdamW's pieces, and GELU that leaves
// them while it writes. Maxima are exact, so none of this depends on an order. GELU moves the bytes of the
// plain one; the others read 2 bytes an element, or 4 bytes for every 4096.
#include <algorithm>

#include "kernels/cuda/absmax.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/vector.cuh"

namespace andrea::cuda {
namespace {

using bf16 = __nv_bfloat16;
constexpr int kThreads = 256;
constexpr int kVector = 8;

unsigned blocks_over(std::int64_t n) {
  return static_cast<unsigned>(
      std::min<std::int64_t>((n + kVector * kThreads - 1) / (kVector * kThreads), 2112));
}

__device__ __forceinline__ std::int64_t first_vector() {
  return (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVector;
}
__device__ __forceinline__ std::int64_t vector_stride() {
  return static_cast<std::int64_t>(gridDim.x) * kThreads * kVector;
}

__global__ void __launch_bounds__(kThreads) k_absmax(Absmax* absmax, const bf16* x, std::int64_t n) {
  Largest<bf16> largest{absmax};
  for (std::int64_t i = first_vector(); i < n; i += vector_stride()) {
    float v[kVector];
    load_floats<kVector>(v, x + i);
    largest.see(v);
  }
  largest.publish();
}

template <bool kWriteG>
__global__ void __launch_bounds__(kThreads) k_gelu(bf16* g, Absmax* absmax, const bf16* h, std::int64_t n) {
  Largest<bf16> largest{absmax};
  for (std::int64_t i = first_vector(); i < n; i += vector_stride()) {
    float v[kVector];
    load_floats<kVector>(v, h + i);
#pragma unroll
    for (int k = 0; k < kVector; ++k) v[k] *= gate<bf16>(v[k]);
    largest.see(v);
    if (kWriteG) store_floats<kVector>(g + i, v);
  }
  largest.publish();
}

// An element of h, dg and g is read before it is written: they may share memory.
template <bool kWriteG>
__global__ void __launch_bounds__(kThreads)
    k_gelu_backward(bf16* dh, Absmax* dh_absmax, bf16* g, Absmax* g_absmax, const bf16* dg, const bf16* h,
                    std::int64_t n) {
  Largest<bf16> largest{dh_absmax};
  Largest<bf16> largest_g{g_absmax};
  for (std::int64_t i = first_vector(); i < n; i += vector_stride()) {
    float x[kVector];
    float dy[kVector];
    float y[kVector];
    load_floats<kVector>(x, h + i);
    load_floats<kVector>(dy, dg + i);
#pragma unroll
    for (int k = 0; k < kVector; ++k) gelu_backward<bf16>(x[k], dy[k], y[k]);
    largest.see(dy);
    store_floats<kVector>(dh + i, dy);
    if (!kWriteG) continue;
    largest_g.see(y);
    store_floats<kVector>(g + i, y);
  }
  largest.publish();
  if (kWriteG) largest_g.publish();
}

// What one launch of k_weights gets as its argument.
struct WeightList {
  static constexpr int kMost = 128;
  WeightPlace places[kMost];
};

__global__ void __launch_bounds__(kThreads)
    k_weights(const WeightList list, const bf16* arena, const std::uint32_t* pieces) {
  __shared__ std::uint32_t of_block;
  const WeightPlace place = list.places[blockIdx.x];
  const std::int64_t end = place.offset + place.n;
  const std::int64_t first = (place.offset + kAbsmaxPiece - 1) / kAbsmaxPiece;  // whole pieces
  const std::int64_t last = end / kAbsmaxPiece;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  std::uint32_t largest = 0;
  for (std::int64_t i = first + threadIdx.x; i < last; i += kThreads) largest = max(largest, pieces[i]);
  const std::int64_t head = first <= last ? min(end, first * kAbsmaxPiece) : end;
  const std::int64_t tail = first <= last ? max(place.offset, last * kAbsmaxPiece) : end;
  for (std::int64_t i = place.offset + threadIdx.x; i < head; i += kThreads)
    largest = max(largest, magnitude<bf16>(to_float(arena[i])));
  for (std::int64_t i = tail + threadIdx.x; i < end; i += kThreads)
    largest = max(largest, magnitude<bf16>(to_float(arena[i])));
  largest = __reduce_max_sync(kFullWarp, largest);
  if (threadIdx.x % 32 == 0) atomicMax(&of_block, largest);
  __syncthreads();
  if (threadIdx.x != 0) return;
  place.absmax->bits = of_block;
}

__global__ void k_take_count(std::int32_t* total, std::uint32_t* counter) {
  *total = static_cast<std::int32_t>(min(*counter, 0x7fffffffU));
  *counter = 0;
}

}  // namespace

void find_absmax(Absmax* absmax, const bf16* x, std::int64_t n, cudaStream_t stream) {
  k_absmax<<<blocks_over(n), kThreads, 0, stream>>>(absmax, x, n);
  ANDREA_CUDA_LAUNCHED("find_absmax");
}

void weights_absmax(const std::vector<WeightPlace>& places, const bf16* arena, const std::uint32_t* pieces,
                    cudaStream_t stream) {
  for (std::size_t done = 0; done < places.size(); done += WeightList::kMost) {
    WeightList list{};
    const std::size_t count = std::min<std::size_t>(places.size() - done, WeightList::kMost);
    std::copy_n(places.begin() + static_cast<std::ptrdiff_t>(done), count, list.places);
    k_weights<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(list, arena, pieces);
    ANDREA_CUDA_LAUNCHED("weights_absmax");
  }
}

void gelu_with_absmax(bf16* g, Absmax* absmax, const bf16* h, std::int64_t n, cudaStream_t stream) {
  if (g != nullptr)
    k_gelu<true><<<blocks_over(n), kThreads, 0, stream>>>(g, absmax, h, n);
  else
    k_gelu<false><<<blocks_over(n), kThreads, 0, stream>>>(nullptr, absmax, h, n);
  ANDREA_CUDA_LAUNCHED("gelu_with_absmax");
}

void gelu_backward_with_absmax(bf16* dh, Absmax* dh_absmax, bf16* g, Absmax* g_absmax, const bf16* dg,
                               const bf16* h, std::int64_t n, cudaStream_t stream) {
  if (g_absmax != nullptr)
    k_gelu_backward<true><<<blocks_over(n), kThreads, 0, stream>>>(dh, dh_absmax, g, g_absmax, dg, h, n);
  else
    k_gelu_backward<false><<<blocks_over(n), kThreads, 0, stream>>>(dh, dh_absmax, g, g_absmax, dg, h, n);
  ANDREA_CUDA_LAUNCHED("gelu_backward_with_absmax");
}

void take_count(std::int32_t* total, std::uint32_t* counter, cudaStream_t stream) {
  k_take_count<<<1, 1, 0, stream>>>(total, counter);
  ANDREA_CUDA_LAUNCHED("take_count");
}

}  // namespace andrea::cuda
