// k_mlp_fwd, k_mlp_bwd.
#include <algorithm>
#include <utility>

#include "backend_fixture.h"

namespace andrea {
namespace {

using reference::Doubles;

class MlpTest : public KernelTest {};

using Shape = std::pair<std::int64_t, std::int64_t>;  // rows, d
const Shape kShapes[] = {{1, 8}, {2, 16}, {3, 32}, {7, 24}, {64, 64}, {65, 40}, {140, 16}, {33, 128}};

Doubles gelu_of(Doubles h) {
  std::transform(h.begin(), h.end(), h.begin(), reference::gelu);
  return h;
}

TEST_P(MlpTest, ForwardKeepsPreActivationAndActivation) {
  for (const auto& [rows, d] : kShapes)
    for (const bool with_residual : {false, true}) {
      SCOPED_TRACE(testing::Message() << "rows " << rows << " d " << d << " residual " << with_residual);
      open({1, rows, d, d / 8, 1, 8, 64, 64});
      const Acts x = acts(normal(rows * d)), w_1 = acts(normal(4 * d * d, 0.4)),
                 w_2 = acts(normal(4 * d * d, 0.2));
      const Acts residual = acts(normal(rows * d));
      const Acts out = poisoned_acts(rows * d), h = poisoned_acts(rows * 4 * d),
                 g = poisoned_acts(rows * 4 * d);
      ops().k_mlp_fwd(out, h, g, x, w_1, w_2, with_residual ? residual.data() : nullptr, rows, d);
      device().wait();
      reference::Mlp want = reference::mlp(doubles(x), doubles(w_1), doubles(w_2), rows, d);
      if (with_residual) want.out = reference::add(want.out, doubles(residual));
      expect_close(read(h), want.h, stored(d, true), "h");
      // h is stored rounded; g may come from the value before that rounding.
      expect_close(read(g), gelu_of(doubles(h)), stored(4, false, 1), "g");
      expect_close(read(out), want.out, stored(4 * d, true, 2), "out");
    }
}

TEST_P(MlpTest, GeluOverItsWholeRange) {
  // One column carries the value, an identity-like w_1 passes it on.
  const std::int64_t rows = 512, d = 8;
  open({1, rows, d, 1, 1, 8, 64, 64});
  std::vector<float> x_values(rows * d, 0.0f), w_values(4 * d * d, 0.0f);
  for (std::int64_t r = 0; r < rows; ++r) x_values[r * d] = static_cast<float>(r - 256) / 16;
  for (std::int64_t j = 0; j < 4 * d; ++j) w_values[j * d] = 1;
  const Acts x = acts(x_values), w_1 = acts(w_values), w_2 = acts(normal(4 * d * d));
  const Acts out = poisoned_acts(rows * d), h = poisoned_acts(rows * 4 * d), g = poisoned_acts(rows * 4 * d);
  ops().k_mlp_fwd(out, h, g, x, w_1, w_2, nullptr, rows, d);
  device().wait();
  const Doubles want = gelu_of(doubles(h));
  const std::vector<float> got = read(g);
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], std::max(4 * unit() * std::fabs(want[i]), 2e-7)) << "at " << doubles(h)[i];
}

TEST_P(MlpTest, BackwardGivesInputAndBothWeights) {
  for (const auto& [rows, d] : kShapes)
    for (const bool accumulate : {false, true})
      for (const bool recompute_g : {false, true})
        for (const bool in_place : {false, true}) {
          SCOPED_TRACE(testing::Message() << "rows " << rows << " d " << d << " accumulate " << accumulate
                                          << " recompute_g " << recompute_g << " dh is h " << in_place);
          open({1, rows, d, d / 8, 1, 8, 64, 64});
          const Acts x = acts(normal(rows * d)), w_1 = acts(normal(4 * d * d, 0.4)),
                     w_2 = acts(normal(4 * d * d, 0.2)), dout = acts(normal(rows * d));
          const Acts out = poisoned_acts(rows * d), h = poisoned_acts(rows * 4 * d),
                     saved_g = poisoned_acts(rows * 4 * d), no_g = poisoned_acts(rows * 4 * d);
          ops().k_mlp_fwd(out, h, saved_g, x, w_1, w_2, nullptr, rows, d);
          device().wait();
          reference::MlpGradients want = reference::mlp_backward(doubles(dout), doubles(x), doubles(h),
                                                                 doubles(w_1), doubles(w_2), rows, d);
          const Acts dx = poisoned_acts(rows * d), dh_memory = poisoned_acts(rows * 4 * d);
          const Floats dw_1 = accumulate ? floats(normal(4 * d * d, 5.0)) : poisoned_floats(4 * d * d);
          const Floats dw_2 = accumulate ? floats(normal(4 * d * d, 5.0)) : poisoned_floats(4 * d * d);
          if (accumulate) {
            want.dw_1 = reference::add(want.dw_1, doubles(dw_1));
            want.dw_2 = reference::add(want.dw_2, doubles(dw_2));
          }
          ops().k_mlp_bwd(dx, dw_1, dw_2, in_place ? h.data() : dh_memory.data(), dout, x, h,
                          recompute_g ? no_g.data() : saved_g.data(), w_1, w_2, rows, d, recompute_g,
                          accumulate);
          device().wait();
          expect_close(read(dx), want.dx, stored(5 * d, true, 2), "dx");
          expect_close(read(dw_1), want.dw_1, summed(rows + d, true, 2), "dw_1");
          expect_close(read(dw_2), want.dw_2, summed(rows, true, 1), "dw_2");
        }
}

ANDREA_ON_EVERY_BACKEND(MlpTest);

}  // namespace
}  // namespace andrea
