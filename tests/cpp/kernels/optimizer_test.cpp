// k_zero_grads, k_grad_norm_partial, k_grad_norm_final, k_grad_scale, k_adamw.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend_fixture.h"

namespace andrea {
namespace {

using reference::Doubles;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

class OptimizerTest : public KernelTest {
 protected:
  void open_for(std::int64_t n) { open({1, 1, 8, 1, 1, 8, 64, n}); }

  template <class T>
  Array<T> put(const T& value) {
    Array<T> result = array<T>(1);
    result.memory.write(&value);
    return result;
  }

  static StepControl control(float clip = 1.0f, int growth_interval = 0) {
    StepControl c{};
    c.learning_rate = 1e-3f, c.beta1 = 0.9f, c.beta2 = 0.999f, c.eps = 1e-8f, c.weight_decay = 0.1f;
    c.bias_correction1 = 0.1f, c.bias_correction2 = 0.001f;
    c.clip_norm = clip, c.loss_scale_growth_interval = growth_interval;
    return c;
  }

  static StepStatus before(float loss_scale = 1, int good_steps = 0) {
    StepStatus s{};
    s.grad_norm = -1, s.grad_multiplier = -1, s.step_loss_scale = -1, s.apply = 7, s.scale_halved = 7;
    s.loss_scale = loss_scale, s.good_steps = good_steps;
    return s;
  }

  // Runs both halves of the norm and returns the decision.
  StepStatus decide(const std::vector<float>& grads, const std::vector<float>& row_losses,
                    const StepControl& c, const StepStatus& s) {
    const std::int64_t n = static_cast<std::int64_t>(grads.size());
    const Floats grads_there = floats(grads), losses = floats(row_losses);
    const std::int64_t pieces = ops().grad_norm_partials(n);
    const Array<double> partials = array<double>(pieces);
    const Array<StepControl> c_there = put(c);
    const Array<StepStatus> s_there = put(s);
    ops().k_grad_norm_partial(partials, grads_there, n);
    ops().k_grad_norm_final(s_there, partials, pieces, losses, losses.n, c_there);
    device().wait();
    StepStatus result;
    s_there.memory.read(&result);
    return result;
  }
};

const std::int64_t kSizes[] = {1, 64, 1000, 65536, 100032, 1 << 20};

double norm_of(const std::vector<float>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

TEST_P(OptimizerTest, ZeroGrads) {
  for (const std::int64_t n : kSizes) {
    open_for(n);
    const Floats grads = poisoned_floats(n);
    ops().k_zero_grads(grads, n);
    device().wait();
    expect_same_bits(read(grads), std::vector<float>(n, 0.0f), "grads");
  }
}

TEST_P(OptimizerTest, NormIsGlobalAndClips) {
  for (const std::int64_t n : kSizes)
    for (const float clip : {0.5f, 1e9f}) {
      SCOPED_TRACE(testing::Message() << "n " << n << " clip " << clip);
      open_for(n);
      std::vector<float> grads = normal(n, 3.0);
      grads[n - 1] = 5;  // the last one must count
      const StepStatus got = decide(grads, {1.0f, 2.0f}, control(clip), before());
      const double norm = norm_of(grads);
      EXPECT_NEAR(got.grad_norm, norm, 2e-7 * norm);
      EXPECT_NEAR(got.grad_multiplier, std::min(1.0, clip / norm), 3e-7);
      EXPECT_EQ(got.apply, 1);
      EXPECT_EQ(got.scale_halved, 0);
      EXPECT_EQ(got.loss_scale, 1.0f);
      EXPECT_EQ(got.step_loss_scale, 1.0f);
    }
}

TEST_P(OptimizerTest, NormBelowTheClipIsLeftAlone) {
  open_for(64);
  std::vector<float> grads(64, 0.0f);
  grads[3] = 1.0f;
  EXPECT_EQ(decide(grads, {1.0f}, control(1.0f), before()).grad_multiplier, 1.0f) << "equal is not above";
  grads.assign(64, 0.0f);
  const StepStatus zero = decide(grads, {1.0f}, control(1.0f), before());
  EXPECT_EQ(zero.grad_norm, 0.0f);
  EXPECT_EQ(zero.grad_multiplier, 1.0f);
  EXPECT_EQ(zero.apply, 1);
}

TEST_P(OptimizerTest, LossScaleIsTakenOut) {
  open_for(1000);
  const std::vector<float> grads = normal(1000, 1000.0);
  const StepStatus got = decide(grads, {1.0f}, control(1e9f, 2000), before(1024, 5));
  EXPECT_NEAR(got.grad_norm, norm_of(grads) / 1024, 1e-6 * got.grad_norm);
  EXPECT_FLOAT_EQ(got.grad_multiplier, 1.0f / 1024);
  EXPECT_EQ(got.step_loss_scale, 1024.0f);
  EXPECT_EQ(got.loss_scale, 1024.0f);
  EXPECT_EQ(got.good_steps, 6);
  const StepStatus clipped = decide(grads, {1.0f}, control(2.0f, 2000), before(1024, 5));
  EXPECT_NEAR(clipped.grad_multiplier, 2.0 / (norm_of(grads) / 1024) / 1024, 1e-6 * clipped.grad_multiplier);
}

TEST_P(OptimizerTest, NonFiniteFailsClosed) {
  for (const std::int64_t n : {std::int64_t{64}, std::int64_t{100032}})
    for (const float bad : {kNan, kInfinity, -kInfinity})
      for (const std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
        open_for(n);
        std::vector<float> grads = normal(n);
        grads[at] = bad;
        const StepStatus got = decide(grads, {1.0f, 1.0f}, control(), before());
        EXPECT_EQ(got.apply, 0) << bad << " at " << at;
        EXPECT_EQ(got.scale_halved, 0);
        EXPECT_FALSE(std::isfinite(got.grad_norm));
        EXPECT_EQ(got.loss_scale, 1.0f) << "never below one";
      }
  open_for(64);
  for (const float bad : {kNan, kInfinity, -kInfinity})
    for (const int at : {0, 1, 2}) {
      std::vector<float> losses(3, 2.0f);
      losses[at] = bad;
      EXPECT_EQ(decide(normal(64), losses, control(), before()).apply, 0) << bad << " in row " << at;
    }
  // Finite elements whose norm is beyond float32.
  EXPECT_EQ(decide(std::vector<float>(64, 3e38f), {1.0f}, control(), before()).apply, 0);
}

TEST_P(OptimizerTest, LargeButFiniteGradientsAreClippedNotLost) {
  open_for(64);
  const StepStatus got = decide(std::vector<float>(64, 1e30f), {1.0f}, control(), before());
  EXPECT_EQ(got.apply, 1);
  EXPECT_NEAR(got.grad_norm, 8e30, 1e25);
  EXPECT_NEAR(got.grad_multiplier, 1.25e-31, 1e-36);
}

TEST_P(OptimizerTest, LossScaleHalvesOnOverflowAndGrows) {
  open_for(64);
  std::vector<float> grads = normal(64);
  StepStatus s = decide(grads, {1.0f}, control(1, 3), before(32768, 0));
  EXPECT_EQ(s.good_steps, 1);
  s = decide(grads, {1.0f}, control(1, 3), s);
  EXPECT_EQ(s.good_steps, 2);
  EXPECT_EQ(s.loss_scale, 32768.0f);
  s = decide(grads, {1.0f}, control(1, 3), s);
  EXPECT_EQ(s.loss_scale, 65536.0f);
  EXPECT_EQ(s.step_loss_scale, 32768.0f);
  EXPECT_EQ(s.good_steps, 0);
  EXPECT_EQ(s.apply, 1);
  grads[5] = kInfinity;
  s.good_steps = 2;
  s = decide(grads, {1.0f}, control(1, 3), s);
  EXPECT_EQ(s.apply, 0);
  EXPECT_EQ(s.scale_halved, 1);
  EXPECT_EQ(s.loss_scale, 32768.0f);
  EXPECT_EQ(s.step_loss_scale, 65536.0f);
  EXPECT_EQ(s.good_steps, 0);
  s = decide(grads, {1.0f}, control(1, 3), before(2, 1));
  EXPECT_EQ(s.loss_scale, 1.0f);
  EXPECT_EQ(s.scale_halved, 1);
  s = decide(grads, {1.0f}, control(1, 3), s);
  EXPECT_EQ(s.loss_scale, 1.0f);
  EXPECT_EQ(s.scale_halved, 0) << "at scale 1 it is a real failure";
  EXPECT_EQ(s.apply, 0);
  s = decide(grads, {kInfinity}, control(1, 3), before(32768, 2));
  EXPECT_EQ(s.scale_halved, 0) << "a loss is not scaled: a smaller scale would cure nothing";
  EXPECT_EQ(s.loss_scale, 32768.0f);
  EXPECT_EQ(s.apply, 0);
}

TEST_P(OptimizerTest, GradScaleMultiplies) {
  for (const std::int64_t n : kSizes) {
    open_for(n);
    const std::vector<float> values = normal(n);
    const Floats grads = floats(values);
    StepStatus s = before();
    s.grad_multiplier = 0.37f;
    const Array<StepStatus> s_there = put(s);
    ops().k_grad_scale(grads, s_there, n);
    device().wait();
    std::vector<float> want = values;
    for (float& value : want) value *= 0.37f;
    expect_same_bits(read(grads), want, "grads");
  }
}

TEST_P(OptimizerTest, AdamWFollowsItsFormula) {
  for (const std::int64_t n : {64, 1024, 100032})
    for (const std::int64_t n_decay : {std::int64_t{0}, n / 2 + 3, n}) {
      SCOPED_TRACE(testing::Message() << "n " << n << " n_decay " << n_decay);
      open_for(n);
      const Floats params = floats(normal(n)), m = floats(std::vector<float>(n, 0.0f)),
                   v = floats(std::vector<float>(n, 0.0f));
      const std::int64_t n_compute = n / 2 + 1;
      const Acts compute = poisoned_acts(n_compute);
      Doubles want_p = doubles(params), want_m(n, 0.0), want_v(n, 0.0);
      StepControl c = control();
      StepStatus s = before();
      s.apply = 1, s.grad_multiplier = 0.125f;
      for (int step = 1; step <= 3; ++step) {
        c.learning_rate = 1e-2f / static_cast<float>(step);
        c.bias_correction1 = static_cast<float>(1 - std::pow(static_cast<double>(c.beta1), step));
        c.bias_correction2 = static_cast<float>(1 - std::pow(static_cast<double>(c.beta2), step));
        const std::vector<float> g = normal(n, 2.0);
        const Floats grads = floats(g);
        const Array<StepControl> c_there = put(c);
        const Array<StepStatus> s_there = put(s);
        ops().k_adamw(params, m, v, compute, grads, c_there, s_there, n, n_decay, n_compute);
        device().wait();
        expect_same_bits(read(grads), g, "grads are only read");
        for (std::int64_t i = 0; i < n; ++i) {
          const double gi = static_cast<double>(g[i]) * s.grad_multiplier;
          want_m[i] = c.beta1 * want_m[i] + (1 - static_cast<double>(c.beta1)) * gi;
          want_v[i] = c.beta2 * want_v[i] + (1 - static_cast<double>(c.beta2)) * gi * gi;
          const double m_hat = want_m[i] / c.bias_correction1, v_hat = want_v[i] / c.bias_correction2;
          want_p[i] -= c.learning_rate *
                       (m_hat / (std::sqrt(v_hat) + c.eps) + (i < n_decay ? c.weight_decay * want_p[i] : 0));
        }
      }
      const double ulp = std::ldexp(1, -23);
      expect_close(read(m), want_m, {4 * ulp, 4 * ulp}, "m");
      expect_close(read(v), want_v, {6 * ulp, 0}, "v");
      // Each step rounds the weight once (half a unit) and errs a few units of its small change.
      expect_close(read(params), want_p, {2 * ulp, 0.2 * ulp}, "params");
      std::vector<float> new_params = read(params);
      new_params.resize(n_compute);
      // 2^-25: half the spacing of float16 numbers below 2^-14.
      expect_close(read(compute), to_doubles(new_params), {unit(), std::ldexp(1, -25)}, "compute weights");
    }
}

TEST_P(OptimizerTest, AdamWWithoutComputeWeights) {
  open_for(128);
  const Floats params = floats(normal(128)), m = floats(normal(128)),
               v = floats(std::vector<float>(128, 1.0f)), grads = floats(normal(128));
  const std::vector<float> old = read(params);
  StepStatus s = before();
  s.apply = 1, s.grad_multiplier = 1;
  const Array<StepControl> c_there = put(control());
  const Array<StepStatus> s_there = put(s);
  ops().k_adamw(params, m, v, nullptr, grads, c_there, s_there, 128, 64, 0);
  device().wait();
  EXPECT_NE(read(params), old);
}

TEST_P(OptimizerTest, AdamWWritesNothingWhenTheStepIsSkipped) {
  const std::int64_t n = 1000;
  open_for(n);
  const std::vector<float> p = normal(n), m0 = normal(n), v0(n, 0.5f);
  const Floats params = floats(p), m = floats(m0), v = floats(v0);
  std::vector<float> g = normal(n);
  g[17] = kNan;
  const Floats grads = floats(g);
  const Acts compute = acts(p);
  const std::vector<float> compute_before = read(compute);
  StepStatus s = before();
  s.apply = 0, s.grad_multiplier = kNan;
  const Array<StepControl> c_there = put(control());
  const Array<StepStatus> s_there = put(s);
  ops().k_adamw(params, m, v, compute, grads, c_there, s_there, n, n, n);
  device().wait();
  expect_same_bits(read(params), p, "params");
  expect_same_bits(read(m), m0, "m");
  expect_same_bits(read(v), v0, "v");
  expect_same_bits(read(compute), compute_before, "compute weights");
}

ANDREA_ON_EVERY_BACKEND(OptimizerTest);

}  // namespace
}  // namespace andrea
