// exp and GELU on vectors. tests/cpp/kernels checks them through the operations that use them.
#pragma once

#include "kernels/cpu/vec.h"

namespace andrea::ANDREA_CPU_PATH {

/// e^x within 2 units in the last place; 0 below -87, NaN stays NaN, above 88.37 the largest it can say.
inline Vec exp(Vec x) {
  const Vec lowest = splat(-87.0f);
  const Vec clamped = min(splat(88.37f), max(lowest, x));  // second operands, so that NaN passes
  // n = round(x / ln 2) sits in the low bits of `shifted`; r = x - n ln 2 in two parts, |r| <= ln 2 / 2.
  const Vec magic = splat(12582912.0f);
  const Vec shifted = fma(clamped, splat(1.442695041f), magic);
  const Vec n = shifted - magic;
  const Vec r = fma(n, splat(2.12194440e-4f), fma(n, splat(-0.693359375f), clamped));
  // e^r = 1 + r + r^2 q(r): minimax fit of q over that interval, relative error 3e-9.
  Vec q = splat(0.0013814467238262296f);
  q = fma(q, r, splat(0.008368780836462975f));
  q = fma(q, r, splat(0.04166839271783829f));
  q = fma(q, r, splat(0.1666651964187622f));
  q = fma(q, r, splat(0.4999999403953552f));
  const Vec value = fma(r * r, q, r) + splat(1.0f);
  return if_less(x, lowest, zero(), scale_by_power(value, shifted));
}

// GELU in the tanh form: 0.5 x (1 + tanh(u)) = x s with s = 1 / (1 + e^(-2u)), u = sqrt(2/pi) (x + 0.044715
// x^3).
struct GeluPoint {
  Vec value;
  Vec derivative;
};

inline Vec gelu_sigmoid(Vec x, Vec x_squared) {
  const Vec minus_2u = x * fma(x_squared, splat(-0.0713548162726f), splat(-1.59576912161f));
  return splat(1.0f) / (splat(1.0f) + exp(minus_2u));
}

inline Vec gelu(Vec x) { return x * gelu_sigmoid(x, x * x); }

/// gelu'(x) = s + x s (1 - s) d(2u)/dx
inline GeluPoint gelu_with_derivative(Vec x) {
  const Vec x_squared = x * x;
  const Vec s = gelu_sigmoid(x, x_squared);
  const Vec slope = fma(x_squared, splat(0.2140644488178f), splat(1.59576912161f));
  return {x * s, fma(x * s * (splat(1.0f) - s), slope, s)};
}

}  // namespace andrea::ANDREA_CPU_PATH
