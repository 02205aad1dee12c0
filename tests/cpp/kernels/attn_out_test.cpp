// k_attn_out_fwd, k_attn_out_bwd.
#include <utility>

#include "backend_fixture.h"

namespace andrea {
namespace {

using reference::Doubles;

class AttnOutTest : public KernelTest {};

using Shape = std::pair<std::int64_t, std::int64_t>;  // rows, d
const Shape kShapes[] = {{1, 8},   {2, 16},   {3, 64},   {7, 24},   {8, 128},
                         {64, 72}, {65, 128}, {300, 32}, {129, 200}};

TEST_P(AttnOutTest, ForwardProjectsAndAddsTheResidual) {
  for (const auto& [rows, d] : kShapes)
    for (const bool with_residual : {false, true}) {
      SCOPED_TRACE(testing::Message() << "rows " << rows << " d " << d << " residual " << with_residual);
      open({1, rows, d, d / 8, 1, 8, 64, 64});
      const Acts att = acts(normal(rows * d)), w = acts(normal(d * d, 0.2)),
                 residual = acts(normal(rows * d, 2.0));
      const Acts out = poisoned_acts(rows * d);
      Doubles want = reference::matmul_nt(doubles(att), doubles(w), rows, d, d);
      if (with_residual) want = reference::add(want, doubles(residual));
      ops().k_attn_out_fwd(out, att, w, with_residual ? residual.data() : nullptr, rows, d);
      device().wait();
      expect_close(read(out), want, stored(d, true), "out");
    }
}

TEST_P(AttnOutTest, BackwardGivesInputAndWeights) {
  for (const auto& [rows, d] : kShapes)
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message() << "rows " << rows << " d " << d << " accumulate " << accumulate);
      open({1, rows, d, d / 8, 1, 8, 64, 64});
      const Acts att = acts(normal(rows * d)), w = acts(normal(d * d, 0.2)), dout = acts(normal(rows * d));
      const Acts datt = poisoned_acts(rows * d);
      const Floats dw = accumulate ? floats(normal(d * d, 10.0)) : poisoned_floats(d * d);
      Doubles want_dw = reference::matmul_tn(doubles(dout), doubles(att), d, d, rows);
      if (accumulate) want_dw = reference::add(want_dw, doubles(dw));
      ops().k_attn_out_bwd(datt, dw, dout, att, w, rows, d, accumulate);
      device().wait();
      expect_close(read(datt), reference::matmul_nn(doubles(dout), doubles(w), rows, d, d), stored(d, true),
                   "datt");
      expect_close(read(dw), want_dw, summed(rows, true), "dw_o");
    }
}

ANDREA_ON_EVERY_BACKEND(AttnOutTest);

}  // namespace
}  // namespace andrea
