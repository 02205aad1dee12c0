// k_head_fwd, k_head_bwd: the vocabulary in all remainders modulo 8, padded to kVocabMultiple.
#include <algorithm>

#include "backend_fixture.h"

namespace andrea {
namespace {

using reference::Doubles;

class HeadTest : public KernelTest {
 protected:
  // W [Vp, d] whose rows V..Vp-1 are zero.
  Acts head_weights(std::int64_t V, std::int64_t d) {
    std::vector<float> w = normal(padded_vocab(V) * d, 0.2);
    std::fill(w.begin() + V * d, w.end(), 0.0f);
    return acts(w);
  }
};

struct Shape {
  std::int64_t rows, d, V;
};
const Shape kShapes[] = {{1, 8, 40},   {7, 16, 41},  {64, 24, 42}, {65, 128, 43}, {3, 32, 44},   {2, 64, 45},
                         {130, 8, 46}, {33, 48, 47}, {1, 96, 300}, {5, 16, 64},   {200, 32, 129}};

TEST_P(HeadTest, ForwardGivesLogitsAndZeroPadding) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(testing::Message() << "rows " << s.rows << " d " << s.d << " V " << s.V);
    const std::int64_t Vp = padded_vocab(s.V);
    open({1, s.rows, s.d, 1, 1, s.V, Vp, 64});
    const Acts x = acts(normal(s.rows * s.d)), w = head_weights(s.V, s.d),
               logits = poisoned_acts(s.rows * Vp);
    ops().k_head_fwd(logits, x, w, s.rows, s.d, Vp);
    device().wait();
    const std::vector<float> got = read(logits);
    expect_close(got, reference::matmul_nt(doubles(x), doubles(w), s.rows, Vp, s.d), stored(s.d, true),
                 "logits");
    for (std::int64_t r = 0; r < s.rows; ++r)
      for (std::int64_t v = s.V; v < Vp; ++v) ASSERT_EQ(got[r * Vp + v], 0.0f) << r << " " << v;
  }
}

TEST_P(HeadTest, BackwardGivesInputAndWeights) {
  for (const Shape& s : kShapes)
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << "rows " << s.rows << " d " << s.d << " V " << s.V << " accumulate " << accumulate);
      const std::int64_t Vp = padded_vocab(s.V);
      open({1, s.rows, s.d, 1, 1, s.V, Vp, 64});
      std::vector<float> gradient = normal(s.rows * Vp);
      for (std::int64_t i = 0; i < s.rows * Vp; ++i)
        if (i % Vp >= s.V) gradient[i] = 0;
      const Acts x = acts(normal(s.rows * s.d)), w = head_weights(s.V, s.d), dlogits = acts(gradient);
      const Acts dx = poisoned_acts(s.rows * s.d);
      const Floats dw = accumulate ? floats(normal(Vp * s.d, 10.0)) : poisoned_floats(Vp * s.d);
      const std::vector<float> before = read(dw);
      Doubles want_dw = reference::matmul_tn(doubles(dlogits), doubles(x), Vp, s.d, s.rows);
      if (accumulate) want_dw = reference::add(want_dw, to_doubles(before));
      ops().k_head_bwd(dx, dw, dlogits, x, w, s.rows, s.d, Vp, accumulate);
      device().wait();
      expect_close(read(dx), reference::matmul_nn(doubles(dlogits), doubles(w), s.rows, s.d, Vp),
                   stored(Vp, true), "dx");
      const std::vector<float> got = read(dw);
      expect_close(got, want_dw, summed(s.rows, true), "dw");
      for (std::int64_t i = s.V * s.d; i < Vp * s.d; ++i)
        ASSERT_EQ(got[i], accumulate ? before[i] : 0.0f) << "padding row";
    }
}

TEST_P(HeadTest, BackwardMayWriteItsGradientOverItsInput) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(testing::Message() << "rows " << s.rows << " d " << s.d << " V " << s.V);
    const std::int64_t Vp = padded_vocab(s.V);
    open({1, s.rows, s.d, 1, 1, s.V, Vp, 64});
    const Acts x = acts(normal(s.rows * s.d)), w = head_weights(s.V, s.d),
               dlogits = acts(normal(s.rows * Vp));
    const Acts dx = poisoned_acts(s.rows * s.d);
    const Floats dw = poisoned_floats(Vp * s.d), dw_in_place = poisoned_floats(Vp * s.d);
    ops().k_head_bwd(dx, dw, dlogits, x, w, s.rows, s.d, Vp, false);
    ops().k_head_bwd(x, dw_in_place, dlogits, x, w, s.rows, s.d, Vp, false);
    device().wait();
    EXPECT_EQ(read(x), read(dx));
    EXPECT_EQ(read(dw_in_place), read(dw));
  }
}

ANDREA_ON_EVERY_BACKEND(HeadTest);

}  // namespace
}  // namespace andrea
