// The engine's passes against the double reference, and the promises about bits that the model itself makes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "engine/errors.h"
#include "engine/model/engine.h"
#include "engine/run/checkpoint_file.h"
#include "model/reference_model.h"

namespace andrea {
namespace {

Experiment tiny(std::int64_t vocab = 37, bool tied = true, std::int64_t micro_batches = 1) {
  Experiment e;
  e.name = "tiny";
  e.model = {24, 3, 2, 13, vocab, tied};
  e.train.steps = 100;
  e.train.batch_size = 2;
  e.train.micro_batches = micro_batches;
  e.train.lr.warmup_steps = 0;
  e.train.lr.peak = 1e-2;
  e.train.lr.min = 1e-3;
  return e;
}

std::vector<std::int32_t> random_ids(std::int64_t n, std::int64_t vocab, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocab));
  return ids;
}

// Parameters away from their tame initial values, so that every term of the formulas counts.
void shake(Engine& engine) {
  std::mt19937 generator(3);
  std::normal_distribution<float> normal(0, 0.3F);
  std::vector<std::pair<std::string, std::vector<float>>> tensors;
  for (const ParamSpec& spec : engine.shape().params) {
    std::vector<float> values = engine.get_parameter(spec.name);
    for (float& v : values) v += normal(generator);
    tensors.emplace_back(spec.name, values);
  }
  engine.set_parameters(tensors);
}

testing::ReferenceModel reference_of(Engine& engine) {
  testing::Vec arena(static_cast<std::size_t>(engine.shape().arena_size));
  for (const ParamSpec& spec : engine.shape().params) {
    const std::vector<float> values = engine.get_parameter(spec.name);
    std::copy(values.begin(), values.end(), arena.begin() + spec.offset);
  }
  return {engine.shape(), arena};
}

class ModelOnDevice : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::vector<std::string> present = backends_present();
    if (std::find(present.begin(), present.end(), GetParam()) == present.end())
      GTEST_SKIP() << "no back end " << GetParam() << " here";
  }
  Engine engine(const Experiment& e, std::int64_t memory = 0, int threads = 0) {
    EngineOptions options;
    options.device = GetParam();
    options.memory_bytes = memory;
    options.threads = threads;
    return {e, options};
  }
  /// Those of `all` that this device computes in.
  std::vector<Precision> present(std::initializer_list<Precision> all) {
    std::vector<Precision> result;
    for (const Precision precision : all) try {
        make_backend({GetParam(), precision, false, 1});
        result.push_back(precision);
      } catch (const ConfigError&) {
      }
    return result;
  }
};

/// FP8 needs sizes that are multiples of 16.
Experiment tiny_in(Precision precision, std::int64_t vocab = 37) {
  Experiment e = tiny(vocab);
  if (precision == Precision::kFp8) e.model.d_model = 48, e.model.context = 16;
  e.train.precision = precision;
  return e;
}

TEST_P(ModelOnDevice, LossAndLogitsEqualTheReference) {
  for (const bool tied : {true, false}) {
    for (std::int64_t vocab = 33; vocab <= 41; ++vocab) {
      Engine e = engine(tiny(vocab, tied));
      shake(e);
      const testing::ReferenceModel reference = reference_of(e);
      for (const std::int64_t T : {1L, 5L, 13L}) {
        const auto ids = random_ids(3 * (T + 1), vocab, 7);  // three rows through a batch of two
        EXPECT_NEAR(e.loss(ids.data(), 3, T), reference.loss(ids, 3, T), 2e-5);
        std::vector<float> logits(static_cast<std::size_t>(T * vocab), NAN);
        e.logits(ids.data(), 1, T, logits.data());
        const testing::Vec expected = reference.logits(ids.data(), T);
        for (std::size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], expected[i], 1e-4) << i;
      }
    }
  }
}

TEST_P(ModelOnDevice, GradientsEqualFiniteDifferencesOfTheReference) {
  for (const bool tied : {true, false}) {
    for (const std::int64_t micro_batches : {1, 3}) {
      Experiment config = tiny(37, tied, micro_batches);
      Engine e = engine(config);
      shake(e);
      testing::ReferenceModel reference = reference_of(e);
      const std::int64_t rows = e.rows_per_step(), T = 13;
      const auto ids = random_ids(rows * (T + 1), 37, 11);
      const StepReport report = e.train_batch(ids.data());
      EXPECT_NEAR(report.loss, reference.loss(ids, rows, T), 2e-5);

      double squares = 0;
      std::mt19937 generator(5);
      for (const ParamSpec& spec : e.shape().params) {
        const std::vector<float> gradient = e.get_gradient(spec.name);
        for (const float g : gradient) squares += static_cast<double>(g) * g;
        for (int trial = 0; trial < 6; ++trial) {
          const std::size_t i = generator() % gradient.size();
          double& parameter = reference.arena()[static_cast<std::size_t>(spec.offset) + i];
          const double before = parameter, h = 1e-5;
          parameter = before + h;
          const double up = reference.loss(ids, rows, T);
          parameter = before - h;
          const double down = reference.loss(ids, rows, T);
          parameter = before;
          const double expected = (up - down) / (2 * h);
          EXPECT_NEAR(gradient[i], expected, 2e-5 + 2e-4 * std::abs(expected))
              << spec.name << "[" << i << "]";
        }
      }
      EXPECT_NEAR(report.grad_norm, std::sqrt(squares), 1e-4 * std::sqrt(squares));
    }
  }
}

TEST_P(ModelOnDevice, EveryRecomputeLevelGivesTheSameBits) {
  for (const Precision precision : present({Precision::kFp32, Precision::kFp8})) {
    SCOPED_TRACE(precision_name(precision));
    std::vector<std::vector<float>> weights;
    std::vector<int> levels;
    Experiment config = tiny_in(precision);
    config.train.batch_size = 8;
    const std::int64_t ids_a_step = 8 * (config.model.context + 1);
    // Budgets from the plans themselves: just enough for each level. Where memory is plenty, the plan's own
    // choice is to keep everything in 16 bits, and not in 32.
    std::int64_t budget = 0;
    for (int run = 0; run < 5 && (run == 0 || levels.back() < 3); ++run) {
      config.train.recompute = run == 0 ? "nothing" : "auto";
      Engine e = engine(config, budget);
      levels.push_back(static_cast<int>(e.plan().request.recompute));
      // The first one found by the plan itself, and then just too little memory for the last.
      budget = levels.size() == 1 ? 0 : e.plan().device_bytes - 1;
      for (unsigned step = 0; step < 4; ++step) e.train_batch(random_ids(ids_a_step, 37, step).data());
      weights.push_back(e.export_weights().weights);
    }
    levels.erase(std::unique(levels.begin(), levels.end()), levels.end());
    EXPECT_EQ(levels, (std::vector<int>{0, 1, 2, 3}));
    for (const auto& w : weights) EXPECT_EQ(std::memcmp(w.data(), weights[0].data(), w.size() * 4), 0);
  }
}

TEST_P(ModelOnDevice, ThreadsDoNotChangeTheBits) {
  std::vector<float> first;
  for (const int threads : {1, 2, 4}) {
    Engine e = engine(tiny(), 0, threads);
    for (unsigned step = 0; step < 5; ++step) e.train_batch(random_ids(2 * 14, 37, step).data());
    const std::vector<float> weights = e.export_weights().weights;
    if (first.empty()) first = weights;
    EXPECT_EQ(std::memcmp(weights.data(), first.data(), first.size() * 4), 0) << threads << " threads";
  }
}

TEST_P(ModelOnDevice, EvaluationAndGenerationDoNotChangeTraining) {
  for (const Precision precision : present({Precision::kFp32, Precision::kFp8})) {
    SCOPED_TRACE(precision_name(precision));
    const Experiment config = tiny_in(precision, 300);
    const std::int64_t T = config.model.context;
    Engine quiet = engine(config), busy = engine(config);
    for (unsigned step = 0; step < 6; ++step) {
      const auto ids = random_ids(2 * (T + 1), 300, step);
      const StepReport a = quiet.train_batch(ids.data());
      const auto other = random_ids(3 * (T + 1), 300, 100 + step);
      busy.loss(other.data(), 3, T);
      busy.generate({1, 2, 3}, 30, {});
      const StepReport b = busy.train_batch(ids.data());
      ASSERT_EQ(a.loss, b.loss);
      ASSERT_EQ(a.grad_norm, b.grad_norm);
    }
    EXPECT_EQ(quiet.export_weights().weights, busy.export_weights().weights);
  }
}

TEST_P(ModelOnDevice, NothingRunsInTheMemoryOfAGeneration) {
  Engine e = engine(tiny(300));
  const auto ids = random_ids(2 * 14, 300, 1);
  int refused = 0;
  const auto undisturbed = e.generate({1, 2}, 6, {});
  const auto generated = e.generate({1, 2}, 6, {}, [&](std::int32_t) {
    try {
      e.train_batch(ids.data());
    } catch (const Error&) {
      ++refused;
    }
    try {
      e.loss(ids.data(), 2, 13);
    } catch (const Error&) {
      ++refused;
    }
    return true;
  });
  EXPECT_GE(refused, 12);
  EXPECT_EQ(generated, undisturbed);
  EXPECT_NO_THROW(e.train_batch(ids.data()));
}

TEST_P(ModelOnDevice, DecodingWithTheCacheEqualsTheForwardPass) {
  Engine e = engine(tiny(300));
  shake(e);
  // The most likely token each time, once by the cache and once by the whole forward pass.
  Sampling greedy;
  greedy.temperature = 0;
  const std::vector<std::int32_t> prompt{5, 9, 2};
  const std::vector<std::int32_t> generated = e.generate(prompt, 9, greedy);
  std::vector<std::int32_t> ids{kBos, 5, 9, 2};
  for (const std::int32_t id : generated) {
    std::vector<float> logits(ids.size() * 300);
    e.logits(ids.data(), 1, static_cast<std::int64_t>(ids.size()), logits.data());
    const auto last = logits.end() - 300;
    EXPECT_EQ(std::max_element(last, logits.end()) - last, id);
    ids.push_back(id);
  }
  // Past the context the last half is read again: it goes on without end.
  EXPECT_EQ(e.generate(prompt, 100, greedy).size(), 100U);
}

TEST_P(ModelOnDevice, TrainingLearnsAndRefusesBadIds) {
  Engine e = engine(tiny());
  const auto ids = random_ids(2 * 14, 37, 1);
  const float before = e.train_batch(ids.data()).loss;
  float after = before;
  for (int step = 0; step < 80; ++step) after = e.train_batch(ids.data()).loss;
  EXPECT_LT(after, before / 2);
  auto bad = ids;
  bad[20] = 37;
  EXPECT_THROW(e.train_batch(bad.data()), DataError);
  bad[20] = -1;
  EXPECT_THROW(e.train_batch(bad.data()), DataError);
  EXPECT_THROW(e.loss(bad.data(), 2, 13), DataError);
  EXPECT_THROW(e.loss(ids.data(), 1, 14), ConfigError);
}

TEST_P(ModelOnDevice, NonFiniteStepsAreSkippedAndTimeGoesOn) {
  Engine e = engine(tiny());
  const auto ids = random_ids(2 * 14, 37, 1);
  e.train_batch(ids.data());
  std::vector<float> gamma = e.get_parameter("lnf.gamma");
  const std::vector<float> good = gamma;
  std::fill(gamma.begin(), gamma.end(), std::numeric_limits<float>::max());  // overflows in LayerNorm
  e.set_parameters({{"lnf.gamma", gamma}});
  const std::vector<float> before = e.get_parameter("layers.0.w_1");
  const StepReport report = e.train_batch(ids.data());
  EXPECT_FALSE(report.applied);
  EXPECT_EQ(e.steps_done(), 2);
  EXPECT_EQ(e.get_parameter("layers.0.w_1"), before);
  e.set_parameters({{"lnf.gamma", good}});
  EXPECT_TRUE(e.train_batch(ids.data()).applied);
  for (const float m : e.export_weights().m) ASSERT_TRUE(std::isfinite(m));
}

TEST_P(ModelOnDevice, GoesOnBitForBitInEveryPrecisionWithLossScaleEvents) {
  for (const Precision precision :
       present({Precision::kFp32, Precision::kFp16, Precision::kBf16, Precision::kFp8})) {
    SCOPED_TRACE(precision_name(precision));
    const Experiment e = tiny_in(precision);
    const std::int64_t ids_a_step = 2 * (e.model.context + 1);
    Engine whole = engine(e);
    const bool scaled = precision == Precision::kFp16;
    if (scaled) whole.set_loss_scale(std::ldexp(1.0F, 40), 0);  // far too large: it is halved step by step
    struct Moment {
      Engine::Weights weights;
      float loss_scale;
      std::int32_t good_steps;
    };
    std::vector<Moment> moments;
    std::vector<float> losses;
    int skipped = 0;
    for (unsigned step = 0; step < 40; ++step) {
      moments.push_back({whole.export_weights(), whole.loss_scale(), whole.good_steps()});
      const StepReport report = whole.train_batch(random_ids(ids_a_step, 37, step).data());
      skipped += report.applied ? 0 : 1;
      losses.push_back(report.loss);
      EXPECT_EQ(report.fp8_saturated, 0);
    }
    if (scaled) {
      EXPECT_GT(skipped, 5);
      EXPECT_LT(skipped, 35);
    }
    const Engine::Weights end = whole.export_weights();
    for (const unsigned from :
         {1U, static_cast<unsigned>(skipped) / 2 + 1, static_cast<unsigned>(skipped) + 2, 37U}) {
      SCOPED_TRACE(from);
      Engine resumed = engine(e);
      resumed.import_weights(moments[from].weights, from);
      resumed.set_loss_scale(moments[from].loss_scale, moments[from].good_steps);
      for (unsigned step = from; step < 40; ++step)
        ASSERT_EQ(resumed.train_batch(random_ids(ids_a_step, 37, step).data()).loss, losses[step]) << step;
      const Engine::Weights again = resumed.export_weights();
      EXPECT_EQ(again.weights, end.weights);
      EXPECT_EQ(again.m, end.m);
      EXPECT_EQ(again.v, end.v);
      EXPECT_EQ(resumed.loss_scale(), whole.loss_scale());
    }
  }
}

TEST_P(ModelOnDevice, Fp8LearnsBesideBf16AndIsNotTheSame) {
  if (present({Precision::kFp8}).empty()) GTEST_SKIP() << "no FP8 on " << GetParam();
  Experiment config = tiny_in(Precision::kFp8);
  Engine fp8 = engine(config);
  config.train.precision = Precision::kBf16;
  Engine bf16 = engine(config);
  const auto ids = random_ids(2 * 17, 37, 1);
  float first = 0, loss = 0, beside = 0;
  for (int step = 0; step < 60; ++step) {
    loss = fp8.train_batch(ids.data()).loss;
    beside = bf16.train_batch(ids.data()).loss;
    if (step == 0) first = loss;
  }
  EXPECT_LT(loss, first / 2);
  EXPECT_LT(std::abs(loss - beside), 0.1F * first);
  EXPECT_NE(bf16.export_weights().weights, fp8.export_weights().weights);
}

TEST_P(ModelOnDevice, ASnapshotHoldsItsMomentWhileTrainingGoesOn) {
  Engine e = engine(tiny());
  for (unsigned step = 0; step < 3; ++step) e.train_batch(random_ids(2 * 14, 37, step).data());
  const Engine::Weights then = e.export_weights();
  const std::string path = ::testing::TempDir() + "snapshot_" + GetParam() + ".bin";
  const Model::Snapshot snapshot = e.take_snapshot();
  // Where a snapshot is a copy it is written later, and the steps in between (recorded ones too) must not
  // show.
  if (e.snapshot_is_a_copy())
    for (unsigned step = 3; step < 8; ++step) e.train_batch(random_ids(2 * 14, 37, step).data());
  e.write_snapshot(snapshot, 3, path);
  Engine::Weights read;
  const CheckpointHeader header = read_checkpoint(path, static_cast<std::int32_t>(e.shape().n_params),
                                                  &read.weights, &read.m, &read.v, nullptr);
  EXPECT_EQ(header.step, 3);
  EXPECT_EQ(read.weights, then.weights);
  EXPECT_EQ(read.m, then.m);
  EXPECT_EQ(read.v, then.v);
}

INSTANTIATE_TEST_SUITE_P(BackEnds, ModelOnDevice, ::testing::Values("cpu", "cuda"),
                         [](const auto& device) { return device.param; });

}  // namespace
}  // namespace andrea
