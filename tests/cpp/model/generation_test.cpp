// Generation through the cache: the same numbers as the forward pass, the same texts alone and together.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "engine/errors.h"
#include "engine/model/engine.h"

namespace andrea {
namespace {

constexpr std::int64_t kContext = 24, kVocab = 300;

Experiment experiment() {
  Experiment e;
  e.name = "tiny";
  e.model = {32, 4, 3, kContext, kVocab, true};
  e.train.batch_size = 2;
  return e;
}

std::vector<std::int32_t> random_ids(std::int64_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(generator() % kVocab);
  return ids;
}

class Generation : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::vector<std::string> present = backends_present();
    if (std::find(present.begin(), present.end(), GetParam()) == present.end())
      GTEST_SKIP() << "no back end " << GetParam() << " here";
  }
  // Weights away from their tame initial values, the same for every engine.
  std::unique_ptr<Engine> engine(std::int64_t sequences, bool training = false) {
    EngineOptions options;
    options.device = GetParam();
    options.sequences = sequences;
    options.training = training;
    auto made = std::make_unique<Engine>(experiment(), options);
    std::mt19937 generator(3);
    std::normal_distribution<float> normal(0, 0.3F);
    std::vector<std::pair<std::string, std::vector<float>>> tensors;
    for (const ParamSpec& spec : made->shape().params) {
      std::vector<float> values = made->get_parameter(spec.name);
      for (float& v : values) v += normal(generator);
      tensors.emplace_back(spec.name, values);
    }
    made->set_parameters(tensors);
    return made;
  }
  std::unique_ptr<Engine> engine_for_training() { return engine(1, true); }
};

// float32 sums in another order: the logits of these weights reach about 20, so 1e-4 is 5e-6 of them.
constexpr float kTolerance = 1e-4F;

TEST_P(Generation, TheCacheGivesTheLogitsOfTrainingsForwardPass) {
  const auto trained = engine_for_training();
  for (const std::int64_t S : {1L, 3L, 9L}) {
    const auto reader = engine(S);
    const std::vector<std::int32_t> ids = random_ids(S * kContext, static_cast<unsigned>(S));
    std::vector<float> want(static_cast<std::size_t>(S * kContext * kVocab)), got(want.size(), NAN);
    trained->logits(ids.data(), S, kContext, want.data());
    reader->decode_logits(ids.data(), S, kContext, got.data());
    // Every position, and with them 0, 1, the middle and the last.
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], kTolerance)
          << S << " sequences, position " << static_cast<std::int64_t>(i) / kVocab % kContext;
  }
}

std::vector<GenerationRequest> requests() {
  std::vector<GenerationRequest> all;
  // Prompts of unlike lengths, one longer than the context; texts that outgrow it and one that wants nothing.
  for (const auto& [length, n] : {std::pair{0, 60}, {5, 7}, {23, 40}, {24, 3}, {70, 30}, {2, 0}, {11, 100}}) {
    GenerationRequest request;
    request.prompt = random_ids(length, 50 + static_cast<unsigned>(length));
    request.n = n;
    request.sampling.seed = 7 + static_cast<std::uint32_t>(length);
    request.sampling.top_p = 0.9;
    request.sampling.repetition_penalty = 1.2;
    all.push_back(request);
  }
  return all;
}

TEST_P(Generation, TogetherTheTextsAreWhatTheyAreAlone) {
  if (GetParam() != "cpu") GTEST_SKIP() << "there a product of another shape may round otherwise";
  const auto alone = engine(1);
  std::vector<std::vector<std::int32_t>> expected;
  for (const GenerationRequest& r : requests()) {
    expected.push_back(alone->generate(r.prompt, r.n, r.sampling));
    EXPECT_EQ(static_cast<std::int64_t>(expected.back().size()), r.n);
  }
  for (const std::int64_t S : {1L, 2L, 7L, 8L}) EXPECT_EQ(engine(S)->generate(requests()), expected) << S;
}

TEST_P(Generation, ATrainingEngineWritesTheSame) {
  EXPECT_EQ(engine_for_training()->generate(requests()), engine(1)->generate(requests()));
}

TEST_P(Generation, AFullContextGoesOnFromItsLastHalf) {
  const auto e = engine(1);
  Sampling greedy;
  greedy.temperature = 0;
  const std::vector<std::int32_t> prompt = random_ids(10, 1);
  const std::vector<std::int32_t> written = e->generate(prompt, 40, greedy);
  std::vector<std::int32_t> ids{kBos};
  ids.insert(ids.end(), prompt.begin(), prompt.end());
  std::size_t begin = 0;
  for (const std::int32_t id : written) {
    if (ids.size() - begin > kContext) begin = ids.size() - kContext / 2;
    std::vector<float> logits((ids.size() - begin) * kVocab);
    e->logits(ids.data() + begin, 1, static_cast<std::int64_t>(ids.size() - begin), logits.data());
    const auto last = logits.end() - kVocab;
    ASSERT_EQ(std::max_element(last, logits.end()) - last, id) << ids.size();
    ids.push_back(id);
  }
}

TEST_P(Generation, ATextThatBeginsLikeTheLastIsReadFromWhereTheyDiffer) {
  const auto used = engine(2);
  Sampling sampling;
  const auto read_after = [&](const std::vector<std::int32_t>& prompt, std::int64_t n) {
    int read = 0;
    const auto got =
        used->generate(prompt, n, sampling, [&](std::int32_t id) { return read += id < 0, true; });
    EXPECT_EQ(got, engine(1)->generate(prompt, n, sampling));
    return read;
  };
  std::vector<std::int32_t> prompt = random_ids(10, 1);
  EXPECT_EQ(read_after(prompt, 4), 10);  // BOS and nine; the tenth chooses
  EXPECT_EQ(read_after(prompt, 4), 0);
  const std::vector<std::int32_t> written = used->generate(prompt, 4, sampling);
  prompt.insert(prompt.end(), written.begin(), written.end());
  prompt.insert(prompt.end(), {1, 2, 3});
  EXPECT_EQ(read_after(prompt, 2), 3);  // the fourth written id was never read, then 1 and 2
  prompt[5] = static_cast<std::int32_t>((prompt[5] + 1) % kVocab);
  EXPECT_EQ(read_after(prompt, 2), 17 - 6);
  // What lies in between makes the cache another's: two texts at once, a text that outgrew it, new weights.
  used->generate({{{5}, 3, sampling}, {{6}, 3, sampling}});
  EXPECT_EQ(read_after(prompt, 2), 17);
  used->generate(prompt, 30, sampling);
  read_after(prompt, 2);
  const std::vector<std::int32_t> before = used->generate(prompt, 5, sampling);
  std::vector<float> table = used->get_parameter("pos_embed");
  for (float& value : table) value = -value;
  used->set_parameters({{"pos_embed", table}});
  const auto fresh = engine(1);
  fresh->set_parameters({{"pos_embed", table}});
  EXPECT_EQ(used->generate(prompt, 5, sampling), fresh->generate(prompt, 5, sampling));
  EXPECT_NE(used->generate(prompt, 5, sampling), before);
}

TEST_P(Generation, EachTextStopsByItself) {
  std::vector<std::vector<std::int32_t>> seen(7);
  const auto written = engine(4)->generate(requests(), [&](std::size_t r, std::int32_t id) {
    if (id < 0) return true;
    seen[r].push_back(id);
    return !(r == 0 && seen[r].size() == 4);
  });
  EXPECT_EQ(written, seen);
  EXPECT_EQ(written[0].size(), 4U);
  EXPECT_EQ(written[2].size(), 40U);
  // While prompts are being read, false ends everything.
  GenerationRequest slow;
  slow.prompt = random_ids(9, 2);
  slow.n = 5;
  const auto none = engine(1)->generate({slow, slow}, [](std::size_t, std::int32_t) { return false; });
  EXPECT_TRUE(none[0].empty() && none[1].empty());
}

TEST_P(Generation, AReaderHasWeightsOnly) {
  const auto reader = engine(2), trained = engine_for_training();
  EXPECT_EQ(reader->plan().group_bytes("gradients") + reader->plan().group_bytes("moments"), 0);
  EXPECT_LT(reader->plan().device_bytes, trained->plan().device_bytes);
  const std::vector<std::int32_t> ids = random_ids(2 * (kContext + 1), 5);
  EXPECT_EQ(reader->loss(ids.data(), 2, kContext), trained->loss(ids.data(), 2, kContext));
  EXPECT_THROW(reader->train_batch(ids.data()), ConfigError);
  EXPECT_THROW(reader->save(::testing::TempDir() + "never.bin"), ConfigError);
  EXPECT_THROW(reader->export_weights(), ConfigError);
  EXPECT_THROW(reader->get_gradient("lnf.gamma"), ConfigError);
  EXPECT_THROW(engine(0), ConfigError);
  EXPECT_THROW(engine(kMostSequences + 1), ConfigError);
  const std::string path = ::testing::TempDir() + "reader_" + GetParam() + ".bin";
  trained->save(path);
  const auto fresh = engine(1);
  fresh->set_parameters({{"lnf.gamma", std::vector<float>(32, 0.0F)}});
  fresh->load(path);
  EXPECT_EQ(fresh->get_parameter("lnf.gamma"), trained->get_parameter("lnf.gamma"));
}

INSTANTIATE_TEST_SUITE_P(BackEnds, Generation, ::testing::Values("cpu", "cuda"),
                         [](const auto& device) { return device.param; });

}  // namespace
}  // namespace andrea
