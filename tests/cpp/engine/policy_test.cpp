#include "engine/run/policy.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/errors.h"
#include "engine/scratch_directory.h"

namespace andrea {
namespace {

Experiment experiment_with(const std::string& policy, std::optional<double> first,
                           std::optional<double> second) {
  Experiment experiment;
  experiment.curriculum.policy = policy;
  experiment.data.sources.resize(2);
  experiment.data.sources[0].weight = first;
  experiment.data.sources[1].weight = second;
  return experiment;
}

const std::vector<SourceInfo> kSources{{"chat", 10, 300, 900}, {"irc", 5, 100, 400}};

TEST(ConstantPolicy, GivesTheWeightsItsNameSays) {
  const auto weights = [](const std::string& policy, std::optional<double> a, std::optional<double> b) {
    const auto made = make_constant_policy(experiment_with(policy, a, b), kSources);
    return made->begin_phase(0, {}).weights;
  };
  EXPECT_EQ(weights("uniform", 3, 4), (std::vector<double>{1, 1}));
  EXPECT_EQ(weights("proportional", 3, 4), (std::vector<double>{300, 100}));
  EXPECT_EQ(weights("fixed", 3, 0), (std::vector<double>{3, 0}));
  EXPECT_EQ(weights("fixed", 3, std::nullopt), (std::vector<double>{3, 1}));
}

TEST(ConstantPolicy, HasOneEndlessPhaseWithItsReasons) {
  const auto policy = make_constant_policy(experiment_with("fixed", 0.5, 2), kSources);
  for (const std::int64_t step : {std::int64_t{0}, std::int64_t{1} << 31}) {
    const Phase phase = policy->begin_phase(step, {});
    EXPECT_EQ(phase.first_step, step);
    EXPECT_GT(phase.first_step + phase.steps, std::int64_t{1} << 60);
    const auto log = nlohmann::json::parse(phase.log);
    EXPECT_EQ(log["policy"], "fixed");
    EXPECT_EQ(log["weights"]["irc"], 2.0);
  }
  policy->restore(policy->state());
  EXPECT_EQ(policy->begin_phase(5, {}).weights, (std::vector<double>{0.5, 2}));
  EXPECT_EQ(policy->not_reproducible_from(), -1);
}

TEST(ConstantPolicy, OthersAndNoWeightAtAllAreRefused) {
  const auto refusal = [](const Experiment& experiment) {
    return testing::message_of<ConfigError>([&] { make_constant_policy(experiment, kSources); });
  };
  EXPECT_HAS(refusal(experiment_with("ucb1_dice", {}, {})), "ucb1_dice");
  EXPECT_HAS(refusal(experiment_with("fixed", 0, 0)), "above 0");
}

}  // namespace
}  // namespace andrea
