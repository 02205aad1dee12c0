// FP8 products: of the right factors, with the right scales, whatever was there before. The general suites
// run in FP8 too, with the room its rounding needs; here the rounding of the factors is in the reference.
#include <cmath>
#include <limits>
#include <utility>

#include "backend_fixture.h"
#include "engine/errors.h"

namespace andrea {
namespace {

using reference::add;
using reference::Doubles;
using reference::fp8_factor;
using reference::matmul_nn;
using reference::matmul_nt;
using reference::matmul_tn;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class Fp8Test : public KernelTest {
 protected:
  Doubles factor(const Acts& values) { return fp8_factor(doubles(values)); }
  /// Hopper's tensor cores add products of FP8 in accumulators that drop what is below 2^-13 of the largest
  /// addend. The sums here take up to 32 such additions of partial sums of a few rms.
  static constexpr Tolerance kSummed{0, 1.0 / 256};
  Tolerance as_stored() const { return {1.5 * unit(), kSummed.absolute}; }

  // What the factors x and w of a forward product give.
  void expect_projected(const Acts& out, const Acts& x, const Acts& w, std::int64_t rows, std::int64_t n,
                        std::int64_t k, const char* what) {
    expect_close(read(out), matmul_nt(factor(x), factor(w), rows, n, k), as_stored(), what);
  }
};

using Shape = std::pair<std::int64_t, std::int64_t>;  // rows, d
const Shape kShapes[] = {{16, 16}, {32, 48}, {128, 64}, {144, 80}, {16, 256}, {208, 128}};

TEST_P(Fp8Test, ProjectionsMultiplyE4m3) {
  for (const auto& [rows, d] : kShapes) {
    SCOPED_TRACE(testing::Message() << "rows " << rows << " d " << d);
    open({1, rows, d, d / 8, 1, 8, 64, 64});
    const Acts x = acts(normal(rows * d, 3.0)), w = acts(normal(3 * d * d, 0.02)),
               w_o = acts(normal(d * d, 0.02)), residual = acts(normal(rows * d));
    const Acts qkv = poisoned_acts(rows * 3 * d), out = poisoned_acts(rows * d);
    ops().k_attn_qkv_fwd(qkv, x, w, rows, d);
    ops().k_attn_out_fwd(out, x, w_o, residual, rows, d);
    device().wait();
    expect_projected(qkv, x, w, rows, 3 * d, d, "qkv");
    expect_close(read(out), add(matmul_nt(factor(x), factor(w_o), rows, d, d), doubles(residual)),
                 as_stored(), "out");
  }
}

TEST_P(Fp8Test, GradientsOfProjectionsMultiplyE4m3) {
  for (const auto& [rows, d] : kShapes)
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message() << "rows " << rows << " d " << d << " accumulate " << accumulate);
      open({1, rows, d, d / 8, 1, 8, 64, 64});
      const Acts x = acts(normal(rows * d, 3.0)), w = acts(normal(3 * d * d, 0.02)),
                 dqkv = acts(normal(rows * 3 * d, 1e-5)), dx = poisoned_acts(rows * d);
      const Floats dw = accumulate ? floats(normal(3 * d * d, 1e-4)) : poisoned_floats(3 * d * d);
      Doubles want = matmul_tn(factor(dqkv), factor(x), 3 * d, d, rows);
      if (accumulate) want = add(want, doubles(dw));
      ops().k_attn_qkv_bwd(dx, dw, dqkv, x, w, rows, d, accumulate);
      device().wait();
      expect_close(read(dx), matmul_nn(factor(dqkv), factor(w), rows, d, 3 * d), as_stored(), "dx");
      expect_close(read(dw), want, kSummed, "dw");
    }
}

TEST_P(Fp8Test, TheMlpMultipliesE4m3) {
  for (const auto& [rows, d] : kShapes)
    for (const bool recompute_g : {false, true}) {
      SCOPED_TRACE(testing::Message() << "rows " << rows << " d " << d << " recompute_g " << recompute_g);
      open({1, rows, d, d / 8, 1, 8, 64, 64});
      const Acts x = acts(normal(rows * d)), w_1 = acts(normal(4 * d * d, 0.2)),
                 w_2 = acts(normal(4 * d * d, 0.2)), dout = acts(normal(rows * d, 1e-4));
      const Acts out = poisoned_acts(rows * d), h = poisoned_acts(rows * 4 * d),
                 g = poisoned_acts(rows * 4 * d), no_g = poisoned_acts(rows * 4 * d),
                 dx = poisoned_acts(rows * d), dh = poisoned_acts(rows * 4 * d);
      const Floats dw_1 = poisoned_floats(4 * d * d), dw_2 = poisoned_floats(4 * d * d);
      ops().k_mlp_fwd(out, h, g, x, w_1, w_2, nullptr, rows, d);
      ops().k_mlp_bwd(dx, dw_1, dw_2, dh, dout, x, h, recompute_g ? no_g : g, w_1, w_2, rows, d, recompute_g,
                      false);
      device().wait();
      expect_projected(h, x, w_1, rows, 4 * d, d, "h");
      expect_projected(out, g, w_2, rows, d, 4 * d, "out");
      Doubles want_dh = matmul_nn(factor(dout), factor(w_2), rows, 4 * d, d);
      const Doubles h_read = doubles(h);
      for (std::size_t i = 0; i < want_dh.size(); ++i) want_dh[i] *= reference::gelu_derivative(h_read[i]);
      expect_close(read(dh), want_dh, {4 * unit(), 2 * kSummed.absolute}, "dh");
      expect_close(read(dx), matmul_nn(factor(dh), factor(w_1), rows, d, 4 * d), as_stored(), "dx");
      expect_close(read(dw_1), matmul_tn(factor(dh), factor(x), 4 * d, d, rows), kSummed, "dw_1");
      expect_close(read(dw_2), matmul_tn(factor(dout), factor(g), d, 4 * d, rows), kSummed, "dw_2");
      if (recompute_g) expect_same_bits(read(no_g), read(g), "g, computed again");
    }
}

TEST_P(Fp8Test, APowerOfTwoChangesNothingElse) {
  const std::int64_t rows = 48, d = 64;
  const std::vector<float> x_values = normal(rows * d), w_values = normal(d * d);
  std::vector<float> plain;
  for (const int power : {0, -60, -7, 1, 50}) {
    SCOPED_TRACE(power);
    open({1, rows, d, 8, 1, 8, 64, 64});
    std::vector<float> scaled = x_values;
    for (float& value : scaled) value = std::ldexp(value, power);
    const Acts x = acts(scaled), w = acts(w_values), out = poisoned_acts(rows * d);
    ops().k_attn_out_fwd(out, x, w, nullptr, rows, d);
    device().wait();
    std::vector<float> got = read(out);
    for (float& value : got) value = std::ldexp(value, -power);
    if (plain.empty()) plain = got;
    expect_same_bits(got, plain, "out");
  }
}

TEST_P(Fp8Test, OneLargeNumberCostsTheOthersTheirLastBits) {
  const std::int64_t rows = 16, d = 16;
  open({1, rows, d, 2, 1, 8, 64, 64});
  std::vector<float> values = normal(rows * d);
  values[7] = 1e4F;  // a step is 32 * 2^-9 now: what is below 2^-6 or so is gone
  const Acts x = acts(values), w = acts(normal(d * d)), out = poisoned_acts(rows * d);
  ops().k_attn_out_fwd(out, x, w, nullptr, rows, d);
  device().wait();
  // Row by row, or the row with the large number would hide the others.
  const std::vector<float> got = read(out);
  const Doubles want = matmul_nt(factor(x), factor(w), rows, d, d);
  for (std::int64_t r = 0; r < rows; ++r)
    expect_close({got.begin() + r * d, got.begin() + (r + 1) * d},
                 {want.begin() + r * d, want.begin() + (r + 1) * d}, as_stored(), "row");
}

TEST_P(Fp8Test, TheScaleIsThatOfTheNewestWriter) {
  const std::int64_t rows = 32, d = 64;
  open({1, rows, d, 8, 1, 8, 64, 64});
  const Acts x = acts(normal(rows * d)), large = acts(normal(rows * d, 1e3)),
             zeros = acts(std::vector<float>(rows * d, 0.0F)), w = acts(normal(3 * d * d, 0.02));
  const Acts y = poisoned_acts(rows * d), qkv = poisoned_acts(rows * 3 * d);
  const Floats gamma = floats(normal(d, 0.1, 1)), beta = floats(normal(d, 0.1)), mean = poisoned_floats(rows),
               rstd = poisoned_floats(rows);
  const auto check = [&](const char* what) {
    ops().k_attn_qkv_fwd(qkv, y, w, rows, d);
    device().wait();
    expect_projected(qkv, y, w, rows, 3 * d, d, what);
  };
  ops().k_layernorm_fwd(y, mean, rstd, x, gamma, beta, rows, d);
  check("after LayerNorm");
  ops().k_residual_add(y, large, zeros, rows * d);
  check("after an addition, which leaves no largest magnitude");
  ops().k_layernorm_fwd(y, mean, rstd, large, gamma, beta, rows, d);
  check("after LayerNorm again");
  const Floats values = floats(normal(rows * d, 1e-3));
  ops().k_cast_weights(y, values, rows * d);
  check("after a cast");
  const Floats new_w = floats(normal(3 * d * d, 50.0));
  ops().k_cast_weights(w, new_w, 3 * d * d);
  check("with other weights");
}

TEST_P(Fp8Test, AdamWLeavesTheScalesOfItsWeights) {
  // Three tensors in one arena, whose ends lie within pieces of AdamW's table.
  const std::int64_t rows = 16, d = 48, d_d = d * d, before = 1000 / 8 * 8, n = before + 4 * d_d + 4 * d_d;
  open({1, rows, d, 6, 1, 8, 64, n});
  const Floats params = floats(normal(n, 0.02)), m = floats(std::vector<float>(n, 0.0F)),
               v = floats(std::vector<float>(n, 0.0F)), grads = floats(normal(n));
  const Acts arena = poisoned_acts(n);
  ops().k_cast_weights(arena, params, n);
  const auto part = [&](std::int64_t offset, std::int64_t size) {
    // A view of the arena through memory of its own, for the reference.
    const std::vector<float> all = read(arena);
    return fp8_factor({all.begin() + offset, all.begin() + offset + size});
  };
  const auto at = [&](std::int64_t offset) {
    return reinterpret_cast<const act_t*>(reinterpret_cast<const char*>(arena.data()) +
                                          offset * static_cast<std::int64_t>(ops().act_bytes()));
  };
  const Acts x = acts(normal(rows * d)), qkv = poisoned_acts(rows * 3 * d), out = poisoned_acts(rows * d);
  const auto check = [&](const char* what) {
    ops().k_attn_qkv_fwd(qkv, x, at(before), rows, d);
    ops().k_attn_out_fwd(out, x, at(before + 3 * d_d), nullptr, rows, d);
    device().wait();
    expect_close(read(qkv), matmul_nt(factor(x), part(before, 3 * d_d), rows, 3 * d, d), as_stored(), what);
    expect_close(read(out), matmul_nt(factor(x), part(before + 3 * d_d, d_d), rows, d, d), as_stored(), what);
  };
  check("before");
  Array<StepStatus> status = array<StepStatus>(1);
  Array<StepControl> control = array<StepControl>(1);
  StepStatus decided{};
  decided.grad_multiplier = 1, decided.loss_scale = 1, decided.step_loss_scale = 1;
  const auto update = [&](float rate, int apply) {
    const StepControl settings{rate, 0.9F, 0.999F, 1e-8F, 0.1F, 0.1F, 0.001F, 1.0F, 0};
    control.memory.write(&settings);
    decided.apply = apply;
    status.memory.write(&decided);
    ops().k_adamw(params, m, v, arena, grads, control, status, n, n, n);
  };
  update(1.0F, 1);
  check("after a large update");
  update(1.0F, 0);
  check("after a step that was skipped");
  update(1e-3F, 1);
  check("after a small update");
  const Floats loaded = floats(normal(n, 30.0));
  ops().k_cast_weights(arena, loaded, n);
  check("after a load");
}

TEST_P(Fp8Test, WhatIsNotFiniteStaysSoAndPassesOn) {
  const std::int64_t rows = 16, d = 32;
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    SCOPED_TRACE(bad);
    open({1, rows, d, 4, 1, 8, 64, 64});
    const std::vector<float> good = normal(rows * d);
    std::vector<float> spoilt = good;
    spoilt[100] = bad;
    const Acts x = acts(spoilt), w = acts(normal(3 * d * d)), qkv = poisoned_acts(rows * 3 * d),
               dx = poisoned_acts(rows * d), dqkv = acts(normal(rows * 3 * d));
    const Floats dw = poisoned_floats(3 * d * d);
    ops().k_attn_qkv_fwd(qkv, x, w, rows, d);
    ops().k_attn_qkv_bwd(dx, dw, dqkv, x, w, rows, d, false);
    device().wait();
    for (const float value : read(qkv)) ASSERT_FALSE(std::isfinite(value));  // of every row: it is told
    for (const float value : read(dw)) ASSERT_FALSE(std::isfinite(value));
    for (const float value : read(dx)) ASSERT_TRUE(std::isfinite(value));  // x is no factor of it
    const Floats mended = floats(good);
    ops().k_cast_weights(x, mended, rows * d);
    ops().k_attn_qkv_fwd(qkv, x, w, rows, d);
    device().wait();
    expect_projected(qkv, x, w, rows, 3 * d, d, "qkv");
  }
}

TEST_P(Fp8Test, RowsThatFillNoTileStayInBfloat16) {
  for (const std::int64_t rows : {1, 15, 17, 40}) {
    SCOPED_TRACE(rows);
    const std::int64_t d = 64;
    open({1, rows, d, 8, 1, 8, 64, 64});
    const Acts x = acts(normal(rows * d)), w = acts(normal(3 * d * d)), qkv = poisoned_acts(rows * 3 * d);
    ops().k_attn_qkv_fwd(qkv, x, w, rows, d);
    device().wait();
    expect_close(read(qkv), matmul_nt(doubles(x), doubles(w), rows, 3 * d, d), stored(d), "qkv");
  }
}

TEST_P(Fp8Test, DecodingStaysInBfloat16) {
  // 16 texts at once would fill a tile; each must be what it is alone.
  const std::int64_t B = 16, T = 4, d = 64, V = 8;
  open({B, T, d, 8, 1, V, 64, 64});
  const Acts tok = acts(normal(64 * d)), pos = acts(normal(T * d)), w = acts(normal(3 * d * d)),
             x = poisoned_acts(B * d), qkv = poisoned_acts(B * 3 * d);
  const Ints tokens = ints(ids(B, V)), position = ints({2});
  ops().k_embed_decode_fwd(x, tokens, position, tok, pos, B, d);
  ops().k_attn_qkv_fwd(qkv, x, w, B, d);
  device().wait();
  expect_close(read(qkv), matmul_nt(doubles(x), doubles(w), B, 3 * d, d), stored(d), "qkv");
  // And training's forward pass is in FP8 again.
  const Ints text = ints(ids(B, V));
  ops().k_embed_fwd(x, text, tok, pos, B / T, T, d);
  ops().k_attn_qkv_fwd(qkv, x, w, B, d);
  device().wait();
  expect_projected(qkv, x, w, B, 3 * d, d, "qkv");
}

// With kept factors backward needs neither x nor g, and gives the bits it gives when it casts them again.
TEST_P(Fp8Test, KeptFactorsGiveTheSameBits) {
  const std::int64_t d = 48;
  for (const std::int64_t rows : {16, 64, 144})
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message() << "rows " << rows << " accumulate " << accumulate);
      const std::vector<float> x_values = normal(rows * d),
                               w_values[] = {normal(3 * d * d, 0.2), normal(d * d, 0.2),
                                             normal(4 * d * d, 0.2), normal(4 * d * d, 0.2)};
      const std::vector<float> dout_values = normal(rows * d, 1e-4), dqkv_values = normal(rows * 3 * d, 1e-5),
                               before = normal(4 * d * d, 1e-3);
      std::vector<std::vector<float>> want;
      for (const bool keep : {false, true}) {
        Extent extent{1, 144, d, 6, 1, 8, 64, 64};
        extent.keep_factors = keep;
        open(extent);
        const Acts x = acts(x_values), w_qkv = acts(w_values[0]), w_o = acts(w_values[1]),
                   w_1 = acts(w_values[2]), w_2 = acts(w_values[3]), dout = acts(dout_values),
                   dqkv = acts(dqkv_values);
        const Acts qkv = poisoned_acts(rows * 3 * d), out = poisoned_acts(rows * d),
                   mlp = poisoned_acts(rows * d), h = poisoned_acts(rows * 4 * d),
                   g = poisoned_acts(rows * 4 * d), gone = poisoned_acts(rows * d);
        const Acts dx[] = {poisoned_acts(rows * d), poisoned_acts(rows * d), poisoned_acts(rows * d)};
        const Floats dw_qkv = floats({before.begin(), before.begin() + 3 * d * d}),
                     dw_o = floats({before.begin(), before.begin() + d * d}), dw_1 = floats(before),
                     dw_2 = floats(before);
        ops().k_attn_qkv_fwd(qkv, gone, w_qkv, rows, d);  // another pass before: of NaN
        ops().k_attn_qkv_fwd(qkv, x, w_qkv, rows, d);
        ops().k_attn_out_fwd(out, x, w_o, x, rows, d);
        ops().k_mlp_fwd(mlp, h, g, x, w_1, w_2, nullptr, rows, d);
        const Acts& x_again = keep ? gone : x;
        ops().k_mlp_bwd(dx[0], dw_1, dw_2, h, dout, x_again, h, g, w_1, w_2, rows, d, false, accumulate);
        ops().k_attn_out_bwd(dx[1], dw_o, dout, x_again, w_o, rows, d, accumulate);
        ops().k_attn_qkv_bwd(dx[2], dw_qkv, dqkv, x_again, w_qkv, rows, d, accumulate);
        device().wait();
        const std::vector<std::vector<float>> got = {read(qkv),   read(out),   read(mlp),   read(h),
                                                     read(dx[0]), read(dx[1]), read(dx[2]), read(dw_qkv),
                                                     read(dw_o),  read(dw_1),  read(dw_2)};
        if (want.empty()) want = got;
        const char* names[] = {"qkv",       "out",    "mlp",  "dh",   "dx of the MLP", "datt",
                               "dx of qkv", "dw_qkv", "dw_o", "dw_1", "dw_2"};
        for (std::size_t i = 0; i < got.size(); ++i) expect_same_bits(got[i], want[i], names[i]);
      }
    }
}

TEST_P(Fp8Test, KeptFactorsAreThoseOfEveryLayersOwnWeights) {
  const std::int64_t rows = 32, d = 64, layers = 3;
  Extent extent{1, rows, d, 8, layers, 8, 64, 64};
  extent.keep_factors = true;
  open(extent);
  std::vector<Acts> x, w, dx;
  std::vector<Floats> dw;
  const Acts dy = acts(normal(rows * 3 * d)), qkv = poisoned_acts(rows * 3 * d);
  for (std::int64_t l = 0; l < layers; ++l) {
    x.push_back(acts(normal(rows * d, 1.0 + 9.0 * static_cast<double>(l))));
    w.push_back(acts(normal(3 * d * d, 0.1)));
    dx.push_back(poisoned_acts(rows * d));
    dw.push_back(poisoned_floats(3 * d * d));
    ops().k_attn_qkv_fwd(qkv, x[l], w[l], rows, d);
  }
  for (std::int64_t l = layers - 1; l >= 0; --l)
    ops().k_attn_qkv_bwd(dx[l], dw[l], dy, qkv, w[l], rows, d, false);
  device().wait();
  for (std::int64_t l = 0; l < layers; ++l) {
    expect_close(read(dx[l]), matmul_nn(factor(dy), factor(w[l]), rows, d, 3 * d), as_stored(), "dx");
    expect_close(read(dw[l]), matmul_tn(factor(dy), factor(x[l]), 3 * d, d, rows), kSummed, "dw");
  }
}

TEST_P(Fp8Test, KeptFactorsRefuseWhatNobodyKept) {
  const std::int64_t rows = 32, d = 64;
  Extent extent{1, rows, d, 8, 1, 8, 64, 64};
  extent.keep_factors = true;
  open(extent);
  const Acts x = acts(normal(2 * rows * d)), w = acts(normal(3 * d * d)),
             qkv = acts(normal(2 * rows * 3 * d)), dx = poisoned_acts(rows * d);
  const Floats dw = poisoned_floats(3 * d * d);
  EXPECT_THROW(ops().k_attn_qkv_bwd(dx, dw, qkv, x, w, rows, d, false), DeviceError);
  EXPECT_THROW(ops().k_attn_qkv_fwd(qkv, x, w, 2 * rows, d), DeviceError);
  ops().k_attn_qkv_fwd(qkv, x, w, rows / 2, d);
  EXPECT_THROW(ops().k_attn_qkv_bwd(dx, dw, qkv, x, w, rows, d, false), DeviceError);
  device().wait();
}

// Weights that FP8 products meet only after AdamW's first step are not among those it looks after.
TEST_P(Fp8Test, WeightsThatCameLateHaveNewScalesToo) {
  const std::int64_t rows = 16, d = 32, n = 3 * d * d;
  open({1, rows, d, 4, 1, 8, 64, n});
  const Floats params = floats(normal(n, 0.02)), m = floats(std::vector<float>(n, 0.0F)),
               v = floats(std::vector<float>(n, 0.0F)), grads = floats(normal(n));
  const Acts w = poisoned_acts(n), x = acts(normal(rows * d)), qkv = poisoned_acts(rows * 3 * d);
  Array<StepStatus> status = array<StepStatus>(1);
  Array<StepControl> control = array<StepControl>(1);
  StepStatus decided{};
  decided.grad_multiplier = 1, decided.loss_scale = 1, decided.step_loss_scale = 1, decided.apply = 1;
  const StepControl settings{1.0F, 0.9F, 0.999F, 1e-8F, 0.1F, 0.1F, 0.001F, 1.0F, 0};
  status.memory.write(&decided);
  control.memory.write(&settings);
  const auto step = [&] { ops().k_adamw(params, m, v, w, grads, control, status, n, n, n); };
  device().run(0, step);
  device().run(0, step);  // recorded
  for (int turn = 0; turn < 3; ++turn) {
    ops().k_attn_qkv_fwd(qkv, x, w, rows, d);
    device().wait();
    SCOPED_TRACE(turn);
    expect_projected(qkv, x, w, rows, 3 * d, d, "qkv");
    for (int i = 0; i < 8; ++i) device().run(0, step);  // grows the weights, and changes nothing on the host
  }
}

// More writers than there are slots: what was known is found again.
TEST_P(Fp8Test, LargestMagnitudesDoNotRunOut) {
  const std::int64_t rows = 16, d = 32;
  open({1, rows, d, 4, 1, 8, 64, 64});
  const Acts w = acts(normal(3 * d * d, 0.1)), w_o = acts(normal(d * d, 0.1)),
             w_1 = acts(normal(4 * d * d, 0.1)), w_2 = acts(normal(4 * d * d, 0.1));
  const Floats gamma = floats(normal(d, 0.1, 1)), beta = floats(normal(d)), mean = poisoned_floats(rows),
               rstd = poisoned_floats(rows);
  const Acts first = acts(normal(rows * d)), y = poisoned_acts(rows * d), z = poisoned_acts(rows * d),
             qkv = poisoned_acts(rows * 3 * d), out = poisoned_acts(rows * d);
  ops().k_layernorm_fwd(y, mean, rstd, first, gamma, beta, rows, d);
  for (int turn = 0; turn < 100; ++turn) {
    const Acts x = acts(normal(rows * d, 1.0 + turn));
    ops().k_residual_add(x, x, first, rows * d);
    ops().k_layernorm_fwd(z, mean, rstd, x, gamma, beta, rows, d);
    ops().k_attn_qkv_fwd(qkv, x, w, rows, d);
    ops().k_attn_out_fwd(out, y, w_o, nullptr, rows, d);
    // Leaves two at once, large ones in every other turn.
    const Acts dout = acts(normal(rows * d, turn % 2 == 0 ? 1.0 : 1e-6)), h = acts(normal(rows * 4 * d)),
               g = poisoned_acts(rows * 4 * d), dh = poisoned_acts(rows * 4 * d),
               dx = poisoned_acts(rows * d);
    const Floats dw_1 = poisoned_floats(4 * d * d), dw_2 = poisoned_floats(4 * d * d);
    ops().k_mlp_bwd(dx, dw_1, dw_2, dh, dout, x, h, g, w_1, w_2, rows, d, /*recompute_g=*/true, false);
    device().wait();
    SCOPED_TRACE(turn);
    expect_close(read(dx), matmul_nn(factor(dh), factor(w_1), rows, d, 4 * d), as_stored(), "dx");
    expect_close(read(dw_2), matmul_tn(factor(dout), factor(g), d, 4 * d, rows), kSummed, "dw_2");
    expect_projected(qkv, x, w, rows, 3 * d, d, "qkv");
    expect_projected(out, y, w_o, rows, d, d, "out");
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Fp8Test, testing::Values(Target{"cuda", Precision::kFp8}), target_name);

}  // namespace
}  // namespace andrea
