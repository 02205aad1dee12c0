// k_loss_fwd, k_loss_bwd, k_loss_fwd_bwd, k_row_loss. The padding of the logits is poisoned: nothing may read
// it.
#include <cmath>
#include <limits>

#include "backend_fixture.h"

namespace andrea {
namespace {

using reference::Doubles;

class LossTest : public KernelTest {
 protected:
  // Normal logits [rows, Vp] with NaN in the padding.
  std::vector<float> logits(std::int64_t rows, std::int64_t V, double spread, double offset = 0) {
    std::vector<float> values = normal(rows * padded_vocab(V), spread, offset);
    for (std::size_t i = 0; i < values.size(); ++i)
      if (static_cast<std::int64_t>(i) % padded_vocab(V) >= V)
        values[i] = std::numeric_limits<float>::quiet_NaN();
    return values;
  }
  Array<StepStatus> status(float loss_scale) {
    Array<StepStatus> result = array<StepStatus>(1);
    StepStatus value{};
    value.loss_scale = loss_scale;
    value.step_loss_scale = -1;  // belongs to the step before
    result.memory.write(&value);
    return result;
  }
};

struct Shape {
  std::int64_t rows, V;
};
const Shape kShapes[] = {{1, 64}, {7, 65}, {64, 66},  {65, 67},  {3, 68},   {2, 69}, {5, 70},
                         {9, 71}, {4, 5},  {2, 1281}, {130, 40}, {3, 4353}, {1, 1},  {2, 8449}};

TEST_P(LossTest, ForwardIsLogSumExpMinusTarget) {
  for (const Shape& s : kShapes)
    for (const double spread : {0.1, 3.0}) {
      SCOPED_TRACE(testing::Message() << "rows " << s.rows << " V " << s.V << " spread " << spread);
      const std::int64_t Vp = padded_vocab(s.V);
      open({1, s.rows, 8, 1, 1, s.V, Vp, 64});
      const std::vector<std::int32_t> targets = ids(s.rows, s.V);
      const Acts in = acts(logits(s.rows, s.V, spread));
      const Ints targets_there = ints(targets);
      const Floats losses = poisoned_floats(s.rows);
      ops().k_loss_fwd(losses, in, targets_there, s.rows, s.V, Vp);
      device().wait();
      const Tolerance tolerance = summed(s.V);
      const Doubles want = reference::cross_entropy(doubles(in), targets, s.V, Vp).losses;
      const std::vector<float> got = read(losses);
      for (std::int64_t r = 0; r < s.rows; ++r)
        EXPECT_NEAR(got[r], want[r], tolerance.relative * (want[r] + spread * 4) + 1e-6) << r;
    }
}

TEST_P(LossTest, BackwardIsSoftmaxMinusOneHot) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(testing::Message() << "rows " << s.rows << " V " << s.V);
    const std::int64_t Vp = padded_vocab(s.V);
    open({1, s.rows, 8, 1, 1, s.V, Vp, 64});
    const std::vector<std::int32_t> targets = ids(s.rows, s.V);
    const Acts in = acts(logits(s.rows, s.V, 2.0)), dlogits = poisoned_acts(s.rows * Vp);
    const Ints targets_there = ints(targets);
    const Array<StepStatus> scaled = status(512.0f);
    const float scale = 1.0f / static_cast<float>(s.rows);
    Doubles want = reference::cross_entropy(doubles(in), targets, s.V, Vp).dlogits;
    for (double& value : want) value *= 512.0 * scale;
    ops().k_loss_bwd(dlogits, in, targets_there, scale, scaled, s.rows, s.V, Vp);
    device().wait();
    const std::vector<float> got = read(dlogits);
    expect_close(got, want, stored(s.V, false, 0.1), "dlogits");
    for (std::int64_t i = 0; i < s.rows * Vp; ++i) {
      if (i % Vp >= s.V) {
        ASSERT_EQ(got[i], 0.0f) << "padding " << i;
      }
    }

    ops().k_loss_bwd(in, in, targets_there, scale, scaled, s.rows, s.V, Vp);
    device().wait();
    expect_same_bits(read(in), got, "in place");
  }
}

TEST_P(LossTest, FusedEqualsThePair) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(testing::Message() << "rows " << s.rows << " V " << s.V);
    const std::int64_t Vp = padded_vocab(s.V);
    open({1, s.rows, 8, 1, 1, s.V, Vp, 64});
    const std::vector<std::int32_t> targets = ids(s.rows, s.V);
    const Acts in = acts(logits(s.rows, s.V, 2.0));
    const Ints targets_there = ints(targets);
    const Array<StepStatus> scaled = status(64.0f);
    const reference::Loss want = reference::cross_entropy(doubles(in), targets, s.V, Vp);
    Doubles want_dlogits = want.dlogits;
    for (double& value : want_dlogits) value *= 64.0 * 0.25;
    const Floats losses = poisoned_floats(s.rows);
    ops().k_loss_fwd_bwd(losses, in, targets_there, 0.25f, scaled, s.rows, s.V, Vp);
    device().wait();
    const std::vector<float> got = read(losses);
    for (std::int64_t r = 0; r < s.rows; ++r)
      EXPECT_NEAR(got[r], want.losses[r], 3e-6 * (8 + want.losses[r]));
    const std::vector<float> got_dlogits = read(in);
    expect_close(got_dlogits, want_dlogits, stored(s.V, false, 0.1), "dlogits");
    for (std::int64_t i = 0; i < s.rows * Vp; ++i) {
      if (i % Vp >= s.V) {
        ASSERT_EQ(got_dlogits[i], 0.0f) << "padding " << i;
      }
    }
  }
}

TEST_P(LossTest, LargeLogitsAreExact) {
  const std::int64_t V = 100, Vp = padded_vocab(V);
  for (const double offset : {-30000.0, 30000.0}) {
    open({1, 4, 8, 1, 1, V, Vp, 64});
    const std::vector<std::int32_t> targets = ids(4, V);
    const Acts in = acts(logits(4, V, 200.0, offset)), dlogits = poisoned_acts(4 * Vp);
    const Ints targets_there = ints(targets);
    const Array<StepStatus> scaled = status(1.0f);
    const Floats losses = poisoned_floats(4);
    ops().k_loss_fwd(losses, in, targets_there, 4, V, Vp);
    ops().k_loss_bwd(dlogits, in, targets_there, 1.0f, scaled, 4, V, Vp);
    device().wait();
    const reference::Loss want = reference::cross_entropy(doubles(in), targets, V, Vp);
    const std::vector<float> got = read(losses);
    for (int r = 0; r < 4; ++r) EXPECT_NEAR(got[r], want.losses[r], 0.01) << offset;
    expect_close(read(dlogits), want.dlogits, stored(V, false, 0.1), "dlogits");
  }
}

// A NaN or an infinity among the logits must reach the loss: the step's check reads only that.
TEST_P(LossTest, NonFiniteLogitsShowInTheLoss) {
  const std::int64_t V = 70, Vp = padded_vocab(V);
  open({1, 2, 8, 1, 1, V, Vp, 64});
  const Array<StepStatus> scaled = status(1.0f);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const std::int64_t at : {0, 1, 33, 69}) {
      std::vector<float> values = logits(2, V, 1.0);
      values[at] = bad;
      const Acts in = acts(values);
      const Ints targets = ints({7, 7});
      const Floats losses = poisoned_floats(2), fused = poisoned_floats(2);
      ops().k_loss_fwd(losses, in, targets, 2, V, Vp);
      ops().k_loss_fwd_bwd(fused, in, targets, 1.0f, scaled, 2, V, Vp);
      device().wait();
      EXPECT_FALSE(std::isfinite(read(losses)[0])) << bad << " at " << at;
      EXPECT_FALSE(std::isfinite(read(fused)[0])) << bad << " at " << at;
      EXPECT_TRUE(std::isfinite(read(losses)[1])) << "the other row has nothing to do with it";
      EXPECT_TRUE(std::isfinite(read(fused)[1]));
    }
}

TEST_P(LossTest, RowLossIsTheMeanOverTheSequence) {
  for (const auto& [B, T] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 7}, {8, 256}, {2, 1025}}) {
    open({B, T, 8, 1, 1, 8, 64, 64});
    const Floats losses = floats(normal(B * T, 1.0, 5.0)), rows = poisoned_floats(B);
    ops().k_row_loss(rows, losses, B, T);
    device().wait();
    const Doubles in = doubles(losses);
    Doubles want(B, 0.0);
    for (std::int64_t i = 0; i < B * T; ++i) want[i / T] += in[i] / static_cast<double>(T);
    expect_close(read(rows), want, summed(T), "row losses");
  }
}

ANDREA_ON_EVERY_BACKEND(LossTest);

}  // namespace
}  // namespace andrea
