// k_mlp_fwd / k_mlp_bwd: h = x W_1^T, g = gelu(h) (gelu.cuh), out = residual + g W_2^T.
// Saved: h, and g unless it is recomputed from h. Products take 16 rows d^2 operations forward and twice that
// backward; the pointwise kernels move 4 d rows elements: two passes forward, three (four with g) backward.
// Deterministic: pointwise kernels, and products from the GEMM table.
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/gelu.cuh"

namespace andrea::cuda {
namespace {

template <typename T>
struct Gelu {
  T* g;
  const T* h;
  template <int N>
  __device__ void run(std::int64_t at) const {
    float x[N];
    load_floats<N>(x, h + at);
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] *= gate<T>(x[i]);
    store_floats<N>(g + at, x);
  }
};

// From dL/dg and h: dL/dh, and g = gelu(h) again. dh may be h or dg, g may be dg: an element is read before
// it is written.
template <typename T, bool kWriteG>
struct GeluBackward {
  T* dh;
  const T* dg;
  const T* h;
  T* g;
  template <int N>
  __device__ void run(std::int64_t at) const {
    float x[N];
    float dy[N];
    float y[N];
    load_floats<N>(x, h + at);
    load_floats<N>(dy, dg + at);
#pragma unroll
    for (int i = 0; i < N; ++i) gelu_backward<T>(x[i], dy[i], y[i]);
    store_floats<N>(dh + at, dy);
    if (kWriteG) store_floats<N>(g + at, y);
  }
};

}  // namespace

template <typename T>
void CudaOps<T>::k_mlp_fwd(act_t* out, act_t* h, act_t* g, const act_t* x, const act_t* w_1, const act_t* w_2,
                           const act_t* residual, std::int64_t rows, std::int64_t d) {
  product(GemmKind::kForward, h, x, w_1, nullptr, rows, 4 * d, d);
  launch_elementwise<kVec<T>>(Gelu<T>{typed(g), typed(h)}, rows * 4 * d, aligned16(g, h), stream_);
  product(GemmKind::kForward, out, g, w_2, residual, rows, d, 4 * d);
}

template <typename T>
void CudaOps<T>::k_mlp_bwd(act_t* dx, float* dw_1, float* dw_2, act_t* dh, const act_t* dout, const act_t* x,
                           const act_t* h, act_t* g, const act_t* w_1, const act_t* w_2, std::int64_t rows,
                           std::int64_t d, bool recompute_g, bool accumulate) {
  const std::int64_t n = rows * 4 * d;
  const bool aligned = aligned16(dh, h, g);
  if (recompute_g) {
    // g's memory takes dL/dg first; one pass then turns (dL/dg, h) into (gelu(h), dL/dh).
    product(GemmKind::kInput, g, dout, w_2, nullptr, rows, 4 * d, d);
    launch_elementwise<kVec<T>>(GeluBackward<T, true>{typed(dh), typed(g), typed(h), typed(g)}, n, aligned,
                                stream_);
    weight_gradient(dw_2, dout, g, d, 4 * d, rows, accumulate);
  } else {
    // Once dW_2 has read g, its memory may take dL/dg where dh is h.
    weight_gradient(dw_2, dout, g, d, 4 * d, rows, accumulate);
    act_t* const dg = dh == h ? g : dh;
    // The library has gelu' as an epilogue only in its older kernels: what it saves is more than they lose
    // from about this width on (docs/PERFORMANCE.md).
    if (sizeof(T) == 2 && d >= 768 &&
        gemm_.multiply_with(Epilogue::kGeluBackward, h, GemmKind::kInput, dg, dout, w_2, rows, 4 * d, d,
                            scratch(kGemmWorkspaceBytes), stream_)) {
      dh = dg;  // the product's epilogue has applied gelu'(h) already
    } else {
      product(GemmKind::kInput, dg, dout, w_2, nullptr, rows, 4 * d, d);
      launch_elementwise<kVec<T>>(GeluBackward<T, false>{typed(dh), typed(dg), typed(h), nullptr}, n, aligned,
                                  stream_);
    }
  }
  weight_gradient(dw_1, dh, x, 4 * d, d, rows, accumulate);
  product(GemmKind::kInput, dx, dh, w_1, nullptr, rows, d, 4 * d);
}

#define ANDREA_INSTANTIATE(T)                                                                           \
  template void CudaOps<T>::k_mlp_fwd(act_t*, act_t*, act_t*, const act_t*, const act_t*, const act_t*, \
                                      const act_t*, std::int64_t, std::int64_t);                        \
  template void CudaOps<T>::k_mlp_bwd(act_t*, float*, float*, act_t*, const act_t*, const act_t*,       \
                                      const act_t*, act_t*, const act_t*, const act_t*, std::int64_t,   \
                                      std::int64_t, bool, bool);
ANDREA_INSTANTIATE(float)
ANDREA_INSTANTIATE(__half)
ANDREA_INSTANTIATE(__nv_bfloat16)
#undef ANDREA_INSTANTIATE

}  // namespace andrea::cuda
