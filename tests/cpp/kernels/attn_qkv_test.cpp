// k_attn_qkv_fwd, k_attn_qkv_bwd.
#include <utility>

#include "backend_fixture.h"

namespace andrea {
namespace {

using reference::Doubles;

class AttnQkvTest : public KernelTest {};

using Shape = std::pair<std::int64_t, std::int64_t>;  // rows, d
const Shape kShapes[] = {{1, 8},   {2, 16},   {3, 64},   {7, 24},  {8, 128},
                         {64, 72}, {65, 128}, {300, 32}, {257, 96}};

TEST_P(AttnQkvTest, ForwardProjects) {
  for (const auto& [rows, d] : kShapes) {
    SCOPED_TRACE(testing::Message() << "rows " << rows << " d " << d);
    open({1, rows, d, d / 8, 1, 8, 64, 64});
    const Acts x = acts(normal(rows * d)), w = acts(normal(3 * d * d, 0.1)),
               qkv = poisoned_acts(rows * 3 * d);
    ops().k_attn_qkv_fwd(qkv, x, w, rows, d);
    device().wait();
    expect_close(read(qkv), reference::matmul_nt(doubles(x), doubles(w), rows, 3 * d, d), stored(d, true),
                 "qkv");
  }
}

TEST_P(AttnQkvTest, BackwardGivesInputAndWeights) {
  for (const auto& [rows, d] : kShapes)
    for (const bool accumulate : {false, true}) {
      SCOPED_TRACE(testing::Message() << "rows " << rows << " d " << d << " accumulate " << accumulate);
      open({1, rows, d, d / 8, 1, 8, 64, 64});
      const Acts x = acts(normal(rows * d)), w = acts(normal(3 * d * d, 0.1)),
                 dqkv = acts(normal(rows * 3 * d));
      const Acts dx = poisoned_acts(rows * d);
      const Floats dw = accumulate ? floats(normal(3 * d * d, 10.0)) : poisoned_floats(3 * d * d);
      Doubles want_dw = reference::matmul_tn(doubles(dqkv), doubles(x), 3 * d, d, rows);
      if (accumulate) want_dw = reference::add(want_dw, doubles(dw));
      ops().k_attn_qkv_bwd(dx, dw, dqkv, x, w, rows, d, accumulate);
      device().wait();
      expect_close(read(dx), reference::matmul_nn(doubles(dqkv), doubles(w), rows, d, 3 * d),
                   stored(3 * d, true), "dx");
      expect_close(read(dw), want_dw, summed(rows, true), "dw_qkv");
    }
}

ANDREA_ON_EVERY_BACKEND(AttnQkvTest);

}  // namespace
}  // namespace andrea
