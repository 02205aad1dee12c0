// k_embed_fwd, k_embed_bwd, k_embed_decode_fwd.
#include "backend_fixture.h"

namespace andrea {
namespace {

using reference::Doubles;

class EmbedTest : public KernelTest {};

struct Shape {
  std::int64_t B, T, d, V;
};
const Shape kShapes[] = {{1, 1, 8, 5},   {1, 7, 16, 3},    {3, 64, 24, 17}, {2, 65, 128, 40},
                         {3, 33, 96, 1}, {1, 64, 384, 80}, {8, 64, 32, 257}};

Extent extent(const Shape& s) { return {s.B, s.T, s.d, 1, 1, s.V, padded_vocab(s.V), 64}; }

TEST_P(EmbedTest, ForwardAddsTokenAndPosition) {
  for (const Shape& s : kShapes) {
    SCOPED_TRACE(testing::Message() << "B" << s.B << " T" << s.T << " d" << s.d << " V" << s.V);
    open(extent(s));
    const std::vector<std::int32_t> tokens = ids(s.B * s.T, s.V);
    const Acts tok = acts(normal(s.V * s.d)), pos = acts(normal(s.T * s.d)),
               x = poisoned_acts(s.B * s.T * s.d);
    const Ints tokens_there = ints(tokens);
    ops().k_embed_fwd(x, tokens_there, tok, pos, s.B, s.T, s.d);
    device().wait();
    const Doubles tok_in = doubles(tok), pos_in = doubles(pos);
    Doubles want(s.B * s.T * s.d);
    for (std::int64_t r = 0; r < s.B * s.T; ++r)
      for (std::int64_t c = 0; c < s.d; ++c)
        want[r * s.d + c] = tok_in[tokens[r] * s.d + c] + pos_in[r % s.T * s.d + c];
    expect_close(read(x), want, stored(1), "x");
  }
}

// All four combinations of writing and adding, with ids that repeat, and rows of the table no id names.
TEST_P(EmbedTest, BackwardSumsRowsOfTheSameId) {
  for (const Shape& s : kShapes)
    for (const bool add_tok : {false, true})
      for (const bool add_pos : {false, true}) {
        SCOPED_TRACE(testing::Message() << "B" << s.B << " T" << s.T << " d" << s.d << " V" << s.V << " add "
                                        << add_tok << add_pos);
        open(extent(s));
        const std::vector<std::int32_t> tokens = ids(s.B * s.T, (s.V + 1) / 2);
        const std::vector<float> tok_before = normal(s.V * s.d), pos_before = normal(s.T * s.d);
        const Acts dx = acts(normal(s.B * s.T * s.d));
        const Floats dtok = add_tok ? floats(tok_before) : poisoned_floats(s.V * s.d);
        const Floats dpos = add_pos ? floats(pos_before) : poisoned_floats(s.T * s.d);
        const Ints tokens_there = ints(tokens);
        ops().k_embed_bwd(dtok, dpos, dx, tokens_there, s.B, s.T, s.d, s.V, add_tok, add_pos);
        device().wait();
        Doubles want_tok = add_tok ? to_doubles(tok_before) : Doubles(s.V * s.d, 0.0);
        Doubles want_pos = add_pos ? to_doubles(pos_before) : Doubles(s.T * s.d, 0.0);
        const Doubles g = doubles(dx);
        for (std::int64_t r = 0; r < s.B * s.T; ++r)
          for (std::int64_t c = 0; c < s.d; ++c) {
            want_tok[tokens[r] * s.d + c] += g[r * s.d + c];
            want_pos[r % s.T * s.d + c] += g[r * s.d + c];
          }
        expect_close(read(dtok), want_tok, summed(s.B * s.T), "d_tok_embed");
        expect_close(read(dpos), want_pos, summed(s.B), "d_pos_embed");
      }
}

TEST_P(EmbedTest, BackwardHasTheSameBitsEachTime) {
  const Shape s{4, 128, 64, 7};
  open(extent(s));
  const Ints tokens = ints(ids(s.B * s.T, s.V));
  const Acts dx = acts(normal(s.B * s.T * s.d));
  std::vector<float> first;
  for (int round = 0; round < 5; ++round) {
    const Floats dtok = poisoned_floats(s.V * s.d), dpos = poisoned_floats(s.T * s.d);
    ops().k_embed_bwd(dtok, dpos, dx, tokens, s.B, s.T, s.d, s.V, false, false);
    device().wait();
    if (round == 0) first = read(dtok);
    expect_same_bits(read(dtok), first, "d_tok_embed");
  }
}

TEST_P(EmbedTest, DecodeEmbedsOneTokenAtAPosition) {
  const Shape s{3, 16, 48, 11};
  open(extent(s));
  const std::vector<std::int32_t> tokens = ids(s.B, s.V);
  const Ints tokens_there = ints(tokens);
  const Acts tok = acts(normal(s.V * s.d)), pos = acts(normal(s.T * s.d));
  const Doubles tok_in = doubles(tok), pos_in = doubles(pos);
  for (const std::int32_t position : {0, 5, 15}) {
    const Acts x = poisoned_acts(s.B * s.d);
    const Ints position_there = ints({position});
    ops().k_embed_decode_fwd(x, tokens_there, position_there, tok, pos, s.B, s.d);
    device().wait();
    Doubles want(s.B * s.d);
    for (std::int64_t b = 0; b < s.B; ++b)
      for (std::int64_t c = 0; c < s.d; ++c)
        want[b * s.d + c] = tok_in[tokens[b] * s.d + c] + pos_in[position * s.d + c];
    expect_close(read(x), want, stored(1), "x");
  }
}

ANDREA_ON_EVERY_BACKEND(EmbedTest);

}  // namespace
}  // namespace andrea
