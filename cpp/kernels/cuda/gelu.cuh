// GELU in the tanh form: gelu(h) = h/2 (1 + tanh u) = h s, s = 1 / (1 + exp(-2u)),
//   u = sqrt(2/pi) (h + 0.044715 h^3), hence gelu'(h) = s + h s (1 - s) 2 sqrt(2/pi) (1 + 3 * 0.044715 h^2).
#pragma once

#include <cuda_runtime.h>

namespace andrea::cuda {

constexpr float kRootTwoOverPi = 0.79788456080286535588F;
constexpr float kCubic = 0.044715F;

// (1 + tanh u) / 2 is the logistic function of 2 u: no cancellation, whatever the sign of h.
template <typename T>
__device__ __forceinline__ float gate(float h) {
  const float minus_2u = -2.0F * kRootTwoOverPi * h * (1.0F + kCubic * h * h);
  return __fdividef(1.0F, 1.0F + __expf(minus_2u));
}
// float32 keeps the accurate library function: its test compares with float64.
template <>
__device__ __forceinline__ float gate<float>(float h) {
  return 1.0F / (1.0F + expf(-2.0F * kRootTwoOverPi * h * (1.0F + kCubic * h * h)));
}

/// y = gelu(h), and dy *= gelu'(h).
template <typename T>
__device__ __forceinline__ void gelu_backward(float h, float& dy, float& y) {
  const float s = gate<T>(h);
  const float slope = 2.0F * kRootTwoOverPi * (1.0F + 3.0F * kCubic * h * h);
  y = h * s;
  dy *= s + y * (1.0F - s) * slope;
}

}  // namespace andrea::cuda
