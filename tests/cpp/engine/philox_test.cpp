#include "engine/hash/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace andrea {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers published with the paper (Random123, kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox(0, 0)({0, 0, 0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(0xffffffff, 0xffffffff)({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox(0xa4093822, 0x299f31d0)({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, CountersOf64BitsAreLaidOutLowWordFirst) {
  const Philox philox(1, 2);
  EXPECT_EQ(philox.at(0x1122334455667788, 0x99aabbccddeeff00),
            philox({0x55667788, 0x11223344, 0xddeeff00, 0x99aabbcc}));
}

TEST(Philox, UniformFillsTheUnitInterval) {
  EXPECT_EQ(Philox::uniform(0, 0), 0.0);
  EXPECT_LT(Philox::uniform(0xffffffff, 0xffffffff), 1.0);
  EXPECT_EQ(Philox::uniform(0x80000000, 0), 0.5);
  double sum = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    const auto words = Philox(3, kRows).at(static_cast<std::uint64_t>(i));
    sum += Philox::uniform(words[0], words[1]);
  }
  EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
}

}  // namespace
}  // namespace andrea
