// The float64 references are checked themselves: their backward twins against finite differences.
#include "reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace andrea::reference {
namespace {

Doubles random_doubles(std::int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Doubles result(n);
  for (double& value : result) value = normal(random);
  return result;
}

double dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// d f / d x by central differences must be `gradient`.
void expect_gradient(Doubles x, const Doubles& gradient, const std::function<double(const Doubles&)>& f) {
  ASSERT_EQ(x.size(), gradient.size());
  const double step = 1e-5;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double before = x[i];
    x[i] = before + step;
    const double above = f(x);
    x[i] = before - step;
    const double below = f(x);
    x[i] = before;
    EXPECT_NEAR((above - below) / (2 * step), gradient[i], 1e-7 * (1 + std::fabs(gradient[i]))) << i;
  }
}

TEST(Reference, MatmulVariantsAgree) {
  const Doubles a = random_doubles(6, 1), b = random_doubles(12, 2);  // a [2, 3], b [4, 3]
  Doubles a_t(6), b_t(12);
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 3; ++k) a_t[k * 2 + i] = a[i * 3 + k];
  for (int j = 0; j < 4; ++j)
    for (int k = 0; k < 3; ++k) b_t[k * 4 + j] = b[j * 3 + k];
  const Doubles nt = matmul_nt(a, b, 2, 4, 3), nn = matmul_nn(a, b_t, 2, 4, 3),
                tn = matmul_tn(a_t, b_t, 2, 4, 3);
  for (int i = 0; i < 8; ++i) {
    EXPECT_NEAR(nt[i], nn[i], 1e-14);
    EXPECT_NEAR(nt[i], tn[i], 1e-14);
  }
  EXPECT_NEAR(nt[0], a[0] * b[0] + a[1] * b[1] + a[2] * b[2], 1e-14);
}

TEST(Reference, LayerNormBackward) {
  const std::int64_t d = 6;
  const Doubles x = random_doubles(3 * d, 1), gamma = random_doubles(d, 2), beta = random_doubles(d, 3),
                dy = random_doubles(3 * d, 4);
  const LayerNormGradients got = layernorm_backward(dy, x, gamma, d);
  expect_gradient(x, got.dx, [&](const Doubles& v) { return dot(dy, layernorm(v, gamma, beta, d).y); });
  expect_gradient(gamma, got.dgamma, [&](const Doubles& v) { return dot(dy, layernorm(x, v, beta, d).y); });
  expect_gradient(beta, got.dbeta, [&](const Doubles& v) { return dot(dy, layernorm(x, gamma, v, d).y); });
}

TEST(Reference, AttentionBackward) {
  const std::int64_t B = 2, T = 4, H = 2, hd = 3;
  const Doubles qkv = random_doubles(B * T * 3 * H * hd, 1), dout = random_doubles(B * T * H * hd, 2);
  expect_gradient(qkv, attention_backward(dout, qkv, B, T, H, hd),
                  [&](const Doubles& v) { return dot(dout, attention(v, B, T, H, hd).out); });
}

TEST(Reference, AttentionIsCausalAndAveragesValues) {
  const std::int64_t T = 5, hd = 2;
  Doubles qkv = random_doubles(T * 3 * hd, 3);
  const Attention before = attention(qkv, 1, T, 1, hd);
  EXPECT_DOUBLE_EQ(before.out[0], qkv[2 * hd]) << "the first token sees itself alone";
  for (std::size_t i = (T - 1) * 3 * hd; i < qkv.size(); ++i) qkv[i] += 1;
  const Attention after = attention(qkv, 1, T, 1, hd);
  for (std::int64_t i = 0; i < (T - 1) * hd; ++i) EXPECT_EQ(before.out[i], after.out[i]);
}

TEST(Reference, MlpBackward) {
  const std::int64_t rows = 2, d = 3;
  const Doubles x = random_doubles(rows * d, 1), w_1 = random_doubles(4 * d * d, 2),
                w_2 = random_doubles(4 * d * d, 3), dout = random_doubles(rows * d, 4);
  const MlpGradients got = mlp_backward(dout, x, mlp(x, w_1, w_2, rows, d).h, w_1, w_2, rows, d);
  expect_gradient(x, got.dx, [&](const Doubles& v) { return dot(dout, mlp(v, w_1, w_2, rows, d).out); });
  expect_gradient(w_1, got.dw_1, [&](const Doubles& v) { return dot(dout, mlp(x, v, w_2, rows, d).out); });
  expect_gradient(w_2, got.dw_2, [&](const Doubles& v) { return dot(dout, mlp(x, w_1, v, rows, d).out); });
}

TEST(Reference, CrossEntropyBackward) {
  const std::int64_t V = 5, Vp = 8;
  const std::vector<std::int32_t> targets{4, 0};
  const Doubles logits = random_doubles(2 * Vp, 1);
  expect_gradient(logits, cross_entropy(logits, targets, V, Vp).dlogits, [&](const Doubles& v) {
    const Doubles losses = cross_entropy(v, targets, V, Vp).losses;
    return losses[0] + losses[1];
  });
  const Doubles equal(2 * Vp, 3.0);
  EXPECT_NEAR(cross_entropy(equal, targets, V, Vp).losses[0], std::log(5.0), 1e-14);
}

// The 127 numbers that E4M3 can hold, from its bits: 4 of exponent (bias 7), 3 of mantissa; 0x7f is NaN.
double e4m3_number(int bits) {
  const int exponent = bits >> 3, mantissa = bits & 7;
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

TEST(Reference, E4m3IsTheNearestOfItsNumbers) {
  EXPECT_EQ(e4m3_number(0x7e), 448);
  for (int bits = 0; bits < 0x7f; ++bits) {
    const double here = e4m3_number(bits);
    EXPECT_EQ(e4m3(here), here);
    EXPECT_EQ(e4m3(-here), -here);
    if (bits == 0x7e) break;
    const double next = e4m3_number(bits + 1), middle = (here + next) / 2;
    EXPECT_EQ(e4m3(middle), bits % 2 == 0 ? here : next) << middle;
    EXPECT_EQ(e4m3(std::nextafter(middle, 0)), here);
    EXPECT_EQ(e4m3(std::nextafter(middle, 1000)), next);
  }
  EXPECT_EQ(e4m3(1e30), 448);
  EXPECT_EQ(e4m3(-449), -448);
}

TEST(Reference, Fp8FactorsUseTheWholeRange) {
  EXPECT_EQ(fp8_factor({0, 0}), (Doubles{0, 0}));
  EXPECT_EQ(fp8_factor({448, 1, -17}), (Doubles{448, 1, -16}));  // 17 is between 16 and 18
  EXPECT_EQ(fp8_factor({449, 1, -17}), (Doubles{448, 1, -16}));  // 449 / 2 is nearest to 224
  EXPECT_EQ(fp8_factor({1.75, 1 / 256.0}), (Doubles{1.75, 1 / 256.0}));
  const Doubles x = random_doubles(1000, 3);
  Doubles small = x;
  for (double& value : small) value = std::ldexp(value, -40);
  Doubles scaled = fp8_factor(x);
  for (double& value : scaled) value = std::ldexp(value, -40);
  EXPECT_EQ(fp8_factor(small), scaled);
}

}  // namespace
}  // namespace andrea::reference
