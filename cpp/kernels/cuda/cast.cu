// Casts between float32 and the storage type, and clearing. Memory-bound: n * (4 + sizeof(T)) bytes.
#include "kernels/cuda/absmax.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.h"

namespace andrea::cuda {
namespace {

template <typename To, typename From>
struct Cast {
  To* out;
  const From* in;
  template <int N>
  __device__ void run(std::int64_t at) const {
    float x[N];
    load_floats<N>(x, in + at);
    store_floats<N>(out + at, x);
  }
};

__global__ void k_probe() {}

}  // namespace

bool kernels_fit_device() {
  cudaFuncAttributes attributes{};
  const bool fits = cudaFuncGetAttributes(&attributes, k_probe) == cudaSuccess;
  (void)cudaGetLastError();
  return fits;
}

template <typename T>
void CudaOps<T>::k_cast_weights(act_t* out, const float* in, std::int64_t n) {
  const Cast<T, float> body{typed(out), in};
  if (absmax_pieces_ == nullptr) return launch_elementwise<4>(body, n, aligned16(out, in), stream_);
  launch_with_pieces(body, n, aligned16(out, in), typed(out), n, absmax_pieces_, stream_);
}

template <typename T>
void CudaOps<T>::k_cast_to_float(float* out, const act_t* in, std::int64_t n) {
  launch_elementwise<4>(Cast<float, T>{out, typed(in)}, n, aligned16(out, in), stream_);
}

template <typename T>
void CudaOps<T>::k_zero_grads(float* grads, std::int64_t n) {
  ANDREA_CUDA_CHECK(cudaMemsetAsync(grads, 0, static_cast<std::size_t>(n) * sizeof(float), stream_));
}

#define ANDREA_INSTANTIATE(T)                                                    \
  template void CudaOps<T>::k_cast_weights(act_t*, const float*, std::int64_t);  \
  template void CudaOps<T>::k_cast_to_float(float*, const act_t*, std::int64_t); \
  template void CudaOps<T>::k_zero_grads(float*, std::int64_t);
ANDREA_INSTANTIATE(float)
ANDREA_INSTANTIATE(__half)
ANDREA_INSTANTIATE(__nv_bfloat16)
#undef ANDREA_INSTANTIATE

}  // namespace andrea::cuda
