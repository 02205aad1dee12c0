#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "engine/errors.h"
#include "engine/model/engine.h"

namespace andrea {
namespace {

const std::vector<float> kLogits{0, 1, 3, 2, 3, -1};

std::int32_t draw(const Sampling& s, std::uint64_t index = 0,
                  const std::vector<std::int32_t>& previous = {}) {
  return choose_token(kLogits.data(), static_cast<std::int64_t>(kLogits.size()), s, index, previous);
}

TEST(Sampling, TemperatureZeroTakesTheFirstOfTheBest) {
  Sampling s;
  s.temperature = 0;
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(draw(s, i), 2);
}

TEST(Sampling, FrequenciesFollowTheSoftmax) {
  Sampling s;
  s.temperature = 1.5;
  s.top_k = 0;
  std::map<std::int32_t, int> count;
  constexpr int kDraws = 40000;
  for (int i = 0; i < kDraws; ++i) ++count[draw(s, static_cast<std::uint64_t>(i))];
  double total = 0;
  for (const float l : kLogits) total += std::exp(l / 1.5);
  for (std::size_t k = 0; k < kLogits.size(); ++k) {
    const double p = std::exp(kLogits[k] / 1.5) / total;
    EXPECT_NEAR(count[static_cast<std::int32_t>(k)], p * kDraws, 5 * std::sqrt(p * (1 - p) * kDraws)) << k;
  }
}

TEST(Sampling, TopKAndTopPCutTheTail) {
  Sampling k;
  k.top_k = 3;
  Sampling p;
  p.top_k = 0;
  p.top_p = 0.5;
  p.temperature = 1;
  for (std::uint64_t i = 0; i < 500; ++i) {
    const std::int32_t a = draw(k, i), b = draw(p, i);
    EXPECT_TRUE(a == 2 || a == 4 || a == 3) << a;
    EXPECT_TRUE(b == 2 || b == 4) << b;
  }
}

TEST(Sampling, PenaltyTurnsAwayFromWhatIsThere) {
  Sampling s;
  s.temperature = 0;
  s.repetition_penalty = 2;
  EXPECT_EQ(draw(s, 0, {2}), 4);
  EXPECT_EQ(draw(s, 0, {2, 4, 4}), 3);
}

TEST(Sampling, IsAFunctionOfSeedNonceAndIndex) {
  Sampling s, other;
  other.nonce = 1;
  int differing = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(draw(s, i), draw(s, i));
    differing += draw(s, i) != draw(other, i);
  }
  EXPECT_GT(differing, 10);
}

TEST(Sampling, RefusesTheImpossible) {
  Sampling s;
  s.temperature = -1;
  EXPECT_THROW(draw(s), ConfigError);
  s = {};
  s.top_p = 0;
  EXPECT_THROW(draw(s), ConfigError);
  s = {};
  s.top_k = -2;
  EXPECT_THROW(draw(s), ConfigError);
  s = {};
  s.repetition_penalty = 0;
  EXPECT_THROW(draw(s), ConfigError);
  const std::vector<float> nan{0, NAN};
  EXPECT_THROW(choose_token(nan.data(), 2, {}, 0, {}), DeviceError);
}

}  // namespace
}  // namespace andrea
