// k_residual_add / k_residual_add_bwd: out = a + b; the backward twin hands d_out to both branches.
// Element by element, nothing saved, no sums: deterministic. 3 n sizeof(T) bytes, n additions.
// During training the products add the residual themselves (k_attn_out_fwd, k_mlp_fwd) and
// k_layernorm_bwd adds the branch's gradient (add_to_dx); these two are the plain forms.
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/elementwise.cuh"

namespace andrea::cuda {
namespace {

template <typename T>
struct Add {
  T* out;
  const T* a;
  const T* b;
  template <int N>
  __device__ void run(std::int64_t at) const {
    float x[N];
    float y[N];
    load_floats<N>(x, a + at);
    load_floats<N>(y, b + at);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] += y[i];
    store_floats<N>(out + at, x);
  }
};

}  // namespace

template <typename T>
void CudaOps<T>::k_residual_add(act_t* out, const act_t* a, const act_t* b, std::int64_t n) {
  launch_elementwise<kVec<T>>(Add<T>{typed(out), typed(a), typed(b)}, n, aligned16(out, a, b), stream_);
}

template <typename T>
void CudaOps<T>::k_residual_add_bwd(act_t* da, act_t* db, const act_t* dout, std::int64_t n) {
  const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(T);
  for (act_t* branch : {da, db})
    if (branch != nullptr && branch != dout && bytes > 0)
      ANDREA_CUDA_CHECK(cudaMemcpyAsync(branch, dout, bytes, cudaMemcpyDeviceToDevice, stream_));
}

#define ANDREA_INSTANTIATE(T)                                                                 \
  template void CudaOps<T>::k_residual_add(act_t*, const act_t*, const act_t*, std::int64_t); \
  template void CudaOps<T>::k_residual_add_bwd(act_t*, act_t*, const act_t*, std::int64_t);
ANDREA_INSTANTIATE(float)
ANDREA_INSTANTIATE(__half)
ANDREA_INSTANTIATE(__nv_bfloat16)
#undef ANDREA_INSTANTIATE

}  // namespace andrea::cuda
