// k_attn_fwd, k_attn_bwd, k_attn_decode_fwd.
#include <limits>

#include "backend_fixture.h"

namespace andrea {
namespace {

using reference::Doubles;

class AttentionTest : public KernelTest {};

struct Shape {
  std::int64_t B, T, H, hd;
};
const Shape kShapes[] = {{1, 1, 1, 8},    {3, 1, 2, 32},   {1, 7, 2, 16},   {3, 7, 1, 64},
                         {1, 64, 2, 32},  {2, 64, 1, 24},  {1, 65, 3, 32},  {3, 65, 2, 64},
                         {1, 65, 1, 8},   {1, 65, 1, 128}, {1, 130, 2, 48}, {2, 200, 2, 32},
                         {1, 257, 1, 64}, {1, 70, 2, 12},  {2, 65, 1, 20},  {1, 129, 1, 33}};

Extent extent(const Shape& s) { return {s.B, s.T, s.H * s.hd, s.H, 1, 8, 64, 64}; }

TEST_P(AttentionTest, ForwardIsCausalSoftmax) {
  for (const Shape& s : kShapes)
    for (const double spread : {1.0, 6.0}) {
      SCOPED_TRACE(testing::Message()
                   << "B" << s.B << " T" << s.T << " H" << s.H << " hd" << s.hd << " spread " << spread);
      open(extent(s));
      const Acts qkv = acts(normal(s.B * s.T * 3 * s.H * s.hd, spread));
      const Acts out = poisoned_acts(s.B * s.T * s.H * s.hd);
      const Floats lse = poisoned_floats(s.B * s.H * s.T);
      ops().k_attn_fwd(out, lse, qkv, s.B, s.T, s.H, s.hd);
      device().wait();
      const reference::Attention want = reference::attention(doubles(qkv), s.B, s.T, s.H, s.hd);
      // A score is a sum of hd terms of size spread^2, and its error is the relative error of its weight.
      const auto terms = static_cast<std::int64_t>(spread * spread * spread * spread) * s.hd;
      expect_close(read(out), want.out, stored(s.T + terms, false, 1), "out");
      expect_close(read(lse), want.lse, summed(s.hd), "lse");
    }
}

TEST_P(AttentionTest, BackwardGivesQueryKeyAndValue) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(testing::Message() << "B" << s.B << " T" << s.T << " H" << s.H << " hd" << s.hd);
    open(extent(s));
    const Acts qkv = acts(normal(s.B * s.T * 3 * s.H * s.hd)), dout = acts(normal(s.B * s.T * s.H * s.hd));
    const Acts out = poisoned_acts(s.B * s.T * s.H * s.hd), dqkv = poisoned_acts(s.B * s.T * 3 * s.H * s.hd);
    const Floats lse = poisoned_floats(s.B * s.H * s.T);
    ops().k_attn_fwd(out, lse, qkv, s.B, s.T, s.H, s.hd);
    ops().k_attn_bwd(dqkv, dout, out, qkv, lse, s.B, s.T, s.H, s.hd);
    device().wait();
    expect_close(read(dqkv), reference::attention_backward(doubles(dout), doubles(qkv), s.B, s.T, s.H, s.hd),
                 stored(s.T + s.hd, false, 2), "dqkv");
  }
}

// Scores of several hundred: the softmax must subtract its maximum, tile by tile.
TEST_P(AttentionTest, LargeScoresStayFinite) {
  const Shape s{1, 150, 1, 32};
  open(extent(s));
  const Acts qkv = acts(normal(s.T * 3 * s.hd, 15.0)), dout = acts(normal(s.T * s.hd));
  const Acts out = poisoned_acts(s.T * s.hd), dqkv = poisoned_acts(s.T * 3 * s.hd);
  const Floats lse = poisoned_floats(s.T);
  ops().k_attn_fwd(out, lse, qkv, s.B, s.T, s.H, s.hd);
  ops().k_attn_bwd(dqkv, dout, out, qkv, lse, s.B, s.T, s.H, s.hd);
  device().wait();
  const reference::Attention want = reference::attention(doubles(qkv), s.B, s.T, s.H, s.hd);
  expect_close(read(out), want.out, {0.01, 0.01}, "out");
  expect_close(read(lse), want.lse, {1e-4, 0}, "lse");
  for (const float value : read(dqkv)) ASSERT_TRUE(std::isfinite(value));
}

// What comes later in a sequence cannot change what came before it, not even in one bit.
TEST_P(AttentionTest, TheFutureIsNotSeen) {
  const Shape s{1, 100, 2, 32};
  open(extent(s));
  std::vector<float> values = normal(s.T * 3 * s.H * s.hd);
  const std::int64_t seen = 70;
  std::vector<float> outs[2];
  for (int round = 0; round < 2; ++round) {
    const Acts qkv = acts(values), out = poisoned_acts(s.T * s.H * s.hd);
    const Floats lse = poisoned_floats(s.H * s.T);
    ops().k_attn_fwd(out, lse, qkv, s.B, s.T, s.H, s.hd);
    device().wait();
    outs[round] = read(out);
    outs[round].resize(seen * s.H * s.hd);
    for (std::size_t i = seen * 3 * s.H * s.hd; i < values.size(); ++i) values[i] = 5 - values[i];
  }
  expect_same_bits(outs[1], outs[0], "out of the prefix");
}

TEST_P(AttentionTest, BackwardHasTheSameBitsEachTime) {
  const Shape s{2, 200, 3, 32};
  open(extent(s));
  const Acts qkv = acts(normal(s.B * s.T * 3 * s.H * s.hd)), dout = acts(normal(s.B * s.T * s.H * s.hd));
  const Acts out = poisoned_acts(s.B * s.T * s.H * s.hd);
  const Floats lse = poisoned_floats(s.B * s.H * s.T);
  ops().k_attn_fwd(out, lse, qkv, s.B, s.T, s.H, s.hd);
  std::vector<float> first;
  for (int round = 0; round < 4; ++round) {
    const Acts dqkv = poisoned_acts(s.B * s.T * 3 * s.H * s.hd);
    ops().k_attn_bwd(dqkv, dout, out, qkv, lse, s.B, s.T, s.H, s.hd);
    device().wait();
    if (round == 0) first = read(dqkv);
    expect_same_bits(read(dqkv), first, "dqkv");
  }
}

// Token after token through the cache equals the whole sequence at once. The cache starts as NaN, so that a
// read beyond the position shows.
TEST_P(AttentionTest, DecodeFollowsTheWholeSequence) {
  for (const Shape& s :
       {Shape{1, 9, 2, 8}, {3, 20, 2, 32}, {2, 70, 1, 64}, {1, 140, 2, 32}, {1, 5, 1, 128}}) {
    SCOPED_TRACE(testing::Message() << "B" << s.B << " T" << s.T << " H" << s.H << " hd" << s.hd);
    const std::int64_t t_max = s.T + 3, d = s.H * s.hd;
    open({s.B, t_max, d, s.H, 1, 8, 64, 64});
    const std::vector<float> values = read(acts(normal(s.B * s.T * 3 * d)));
    const reference::Attention want = reference::attention(to_doubles(values), s.B, s.T, s.H, s.hd);
    const Acts cache = poisoned_acts(2 * s.B * t_max * d);
    for (std::int64_t t = 0; t < s.T; ++t) {
      std::vector<float> token(s.B * 3 * d);
      Doubles want_token(s.B * d);
      for (std::int64_t b = 0; b < s.B; ++b) {
        for (std::int64_t i = 0; i < 3 * d; ++i) token[b * 3 * d + i] = values[(b * s.T + t) * 3 * d + i];
        for (std::int64_t i = 0; i < d; ++i) want_token[b * d + i] = want.out[(b * s.T + t) * d + i];
      }
      const Acts qkv = acts(token), out = poisoned_acts(s.B * d);
      const Ints position = ints({static_cast<std::int32_t>(t)});
      ops().k_attn_decode_fwd(out, cache, qkv, position, s.B, t_max, s.H, s.hd);
      device().wait();
      expect_close(read(out), want_token, stored(s.T, false, 1), "out");
    }
  }
}

ANDREA_ON_EVERY_BACKEND(AttentionTest);

}  // namespace
}  // namespace andrea
