// k_layernorm_fwd, k_layernorm_bwd.
#include <utility>

#include "backend_fixture.h"

namespace andrea {
namespace {

using reference::Doubles;

class LayerNormTest : public KernelTest {};

using Shape = std::pair<std::int64_t, std::int64_t>;  // rows, d
const Shape kShapes[] = {{1, 8},   {7, 16},  {64, 24},  {65, 128},  {3, 200},
                         {5, 384}, {2, 768}, {3, 1536}, {300, 136}, {1, 4096}};

Extent extent(const Shape& s) { return {1, s.first, s.second, 1, 1, 8, 64, 64}; }

TEST_P(LayerNormTest, ForwardNormalisesAndSaves) {
  for (const auto& [rows, d] : kShapes) {
    SCOPED_TRACE(testing::Message() << "rows " << rows << " d " << d);
    open(extent({rows, d}));
    const Acts x = acts(normal(rows * d, 3.0, 1.0)), y = poisoned_acts(rows * d);
    const Floats gamma = floats(normal(d, 0.5, 1.0)), beta = floats(normal(d));
    const Floats mean = poisoned_floats(rows), rstd = poisoned_floats(rows);
    ops().k_layernorm_fwd(y, mean, rstd, x, gamma, beta, rows, d);
    device().wait();
    const reference::LayerNorm want = reference::layernorm(doubles(x), doubles(gamma), doubles(beta), d);
    expect_close(read(y), want.y, stored(d), "y");
    expect_close(read(mean), want.mean, summed(d), "mean");
    expect_close(read(rstd), want.rstd, summed(d), "rstd");
  }
}

// A large common offset must not swallow the variance (a sum of squares in float32 would).
TEST_P(LayerNormTest, ForwardStandsAnOffset) {
  if (GetParam().precision != Precision::kFp32) GTEST_SKIP() << "16-bit inputs cannot hold such an offset";
  const std::int64_t rows = 4, d = 256;
  open(extent({rows, d}));
  const Acts x = acts(normal(rows * d, 1.0, 1000.0)), y = poisoned_acts(rows * d);
  const Floats gamma = floats(std::vector<float>(d, 1.0f)), beta = floats(std::vector<float>(d, 0.0f));
  const Floats mean = poisoned_floats(rows), rstd = poisoned_floats(rows);
  ops().k_layernorm_fwd(y, mean, rstd, x, gamma, beta, rows, d);
  device().wait();
  const reference::LayerNorm want = reference::layernorm(doubles(x), doubles(gamma), doubles(beta), d);
  expect_close(read(rstd), want.rstd, {1e-4, 0}, "rstd");
  expect_close(read(y), want.y, {1e-4, 5e-4}, "y");
}

TEST_P(LayerNormTest, ForwardOfAConstantRowIsBeta) {
  const std::int64_t rows = 3, d = 64;
  open(extent({rows, d}));
  const Acts x = acts(std::vector<float>(rows * d, 0.25f)), y = poisoned_acts(rows * d);
  const Acts beta_rounded = acts(normal(d));
  const Floats gamma = floats(normal(d)), beta = floats(read(beta_rounded));
  const Floats mean = poisoned_floats(rows), rstd = poisoned_floats(rows);
  ops().k_layernorm_fwd(y, mean, rstd, x, gamma, beta, rows, d);
  device().wait();
  const std::vector<float> got = read(y), want = read(beta);
  for (std::int64_t i = 0; i < rows * d; ++i) EXPECT_EQ(got[i], want[i % d]);
}

TEST_P(LayerNormTest, BackwardGivesAllThreeGradients) {
  for (const auto& [rows, d] : kShapes)
    for (const bool add_to_dx : {false, true})
      for (const bool accumulate : {false, true}) {
        SCOPED_TRACE(testing::Message() << "rows " << rows << " d " << d << " add_to_dx " << add_to_dx
                                        << " accumulate " << accumulate);
        open(extent({rows, d}));
        const Acts x = acts(normal(rows * d, 2.0, 0.5)), dy = acts(normal(rows * d));
        const Floats gamma = floats(normal(d, 0.5, 1.0)), beta = floats(normal(d));
        const Floats mean = poisoned_floats(rows), rstd = poisoned_floats(rows);
        const Acts y = poisoned_acts(rows * d);
        ops().k_layernorm_fwd(y, mean, rstd, x, gamma, beta, rows, d);
        const Acts dx = add_to_dx ? acts(normal(rows * d)) : poisoned_acts(rows * d);
        const Floats dgamma = accumulate ? floats(normal(d)) : poisoned_floats(d);
        const Floats dbeta = accumulate ? floats(normal(d)) : poisoned_floats(d);
        reference::LayerNormGradients want =
            reference::layernorm_backward(doubles(dy), doubles(x), doubles(gamma), d);
        if (add_to_dx) want.dx = reference::add(want.dx, doubles(dx));
        if (accumulate) {
          want.dgamma = reference::add(want.dgamma, doubles(dgamma));
          want.dbeta = reference::add(want.dbeta, doubles(dbeta));
        }
        ops().k_layernorm_bwd(dx, dgamma, dbeta, dy, x, gamma, mean, rstd, rows, d, add_to_dx, accumulate);
        device().wait();
        expect_close(read(dx), want.dx, stored(d), "dx");
        expect_close(read(dgamma), want.dgamma, summed(rows + d), "dgamma");
        expect_close(read(dbeta), want.dbeta, summed(rows), "dbeta");
      }
}

ANDREA_ON_EVERY_BACKEND(LayerNormTest);

}  // namespace
}  // namespace andrea
