// The promise: a run stopped anywhere and resumed equals the run that was never stopped, bit for bit.
#include "engine/run/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/btok_bytes.h"
#include "engine/errors.h"
#include "engine/run/signals.h"
#include "engine/scratch_directory.h"

namespace andrea {
namespace {

using testing::read_bytes;
using testing::ScratchDirectory;
using testing::write_bytes;

// Weights that depend on everything a policy may see, in phases of three steps.
class MovingPolicy : public Policy {
 public:
  Phase begin_phase(std::int64_t step, const std::vector<Row>& records) override {
    for (const Row& r : records) {
      EXPECT_LE(r.step, step - 2);
      if (!std::isfinite(r.loss)) continue;  // a skipped step
      sum_ = 0.9 * sum_ + static_cast<double>(r.loss) * static_cast<double>(r.source + 1 + r.documents);
    }
    ++phases_;
    const double w = 0.1 + std::fmod(std::abs(sum_), 1.0);
    return {step, 3, {w, 1.1 - w}, nlohmann::json{{"weight", w}}.dump()};
  }
  std::string state() const override { return nlohmann::json{{"sum", sum_}, {"phases", phases_}}.dump(); }
  void restore(const std::string& text) override {
    const auto json = nlohmann::json::parse(text);
    sum_ = json.at("sum");
    phases_ = json.at("phases");
  }

 private:
  double sum_ = 0;
  int phases_ = 0;
};

class TrainerTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::vector<std::string> present = backends_present();
    if (std::find(present.begin(), present.end(), GetParam()) == present.end())
      GTEST_SKIP() << "no back end " << GetParam() << " here";
  }
  TrainerTest() {
    // Small sources, so that a run crosses edges of their epochs.
    write_bytes(data_.file("a.btok"), testing::btok_bytes(testing::documents_of_lengths({5, 40, 1, 17})));
    write_bytes(data_.file("b.btok"), testing::btok_bytes(testing::documents_of_lengths({30, 2, 2, 60, 9})));
    write_bytes(data_.file("eval.btok"), testing::btok_bytes(testing::documents_of_lengths({50, 50})));
  }

  Experiment experiment() {
    Experiment e;
    e.name = "tiny";
    e.model = {16, 2, 1, 8, 300, true};
    e.train.steps = 14;
    e.train.batch_size = 2;
    e.train.micro_batches = 2;
    e.train.lr.warmup_steps = 3;
    e.train.eval_every = 4;
    e.train.eval_batches = 2;
    e.data.sources = {{"a", data_.file("a.btok"), data_.file("eval.btok"), 0, 1, {}},
                      {"b", data_.file("b.btok"), "", 0, 1, {}}};
    e.curriculum.policy = "uniform";
    e.samples.every = 6;
    e.samples.tokens = 5;
    e.samples.prompts = {"", ""};
    e.checkpoint.every = 5;
    e.checkpoint.min_seconds = 0;
    return e;
  }

  // Runs in `out`; stops at the k-th question whether to stop (k < 0: never).
  ExitCode run(const Experiment& e, const std::string& out, TrainerOptions options, int stop_at = -1,
               TrainerHooks hooks = {}) {
    options.out = out;
    EngineOptions engine_options;
    engine_options.device = GetParam();
    engine_options.threads = 1;
    Engine engine(e, engine_options);
    int asked = 0;
    hooks.poll = [&] { return stop_at >= 0 && ++asked >= stop_at; };
    if (!hooks.make_policy)
      hooks.make_policy = [](const Experiment&, const std::vector<SourceInfo>&) {
        return std::make_unique<MovingPolicy>();
      };
    hooks.on_event = [this](const Event& event) { events_.push_back(event.kind + ": " + event.message); };
    Trainer trainer(engine, options, nullptr, hooks);
    return trainer.run();
  }

  static void expect_equal_runs(const std::string& a, const std::string& b, const std::string& what) {
    for (const char* name : {"tiny.bin", "tiny.loss.json", "tiny.samples.json", "tiny.rows.jsonl"})
      EXPECT_EQ(read_bytes(a + "/" + name), read_bytes(b + "/" + name)) << name << " differs: " << what;
  }

  ScratchDirectory data_, runs_;
  std::vector<std::string> events_;
};

TEST_P(TrainerTest, StoppedAtEveryPossibleMomentTheRunIsTheSame) {
  const std::string whole = runs_.file("whole");
  ASSERT_EQ(run(experiment(), whole, {}), ExitCode::kFinished);
  const auto losses = nlohmann::json::parse(read_bytes(whole + "/tiny.loss.json"));
  ASSERT_EQ(losses.size(), 14U);
  ASSERT_EQ(nlohmann::json::parse(read_bytes(whole + "/tiny.samples.json")).size(), 4U);

  TrainerOptions resume;
  resume.resume = true;
  int stops = 0;
  for (int stop_at = 1;; ++stop_at) {
    const std::string out = runs_.file("stopped" + std::to_string(stop_at));
    if (run(experiment(), out, {}, stop_at) == ExitCode::kFinished) break;
    ++stops;
    ASSERT_EQ(run(experiment(), out, resume), ExitCode::kFinished);
    expect_equal_runs(whole, out, "stopped at question " + std::to_string(stop_at));
  }
  EXPECT_GT(stops, 40);  // after steps, in evaluations and in samples
}

TEST_P(TrainerTest, ManyResumesInARowAreTheSame) {
  const std::string whole = runs_.file("whole"), pieces = runs_.file("pieces");
  ASSERT_EQ(run(experiment(), whole, {}), ExitCode::kFinished);
  TrainerOptions options;
  int pieces_run = 0;
  // A set of samples asks a dozen times: with fewer questions a run would never get past one.
  while (run(experiment(), pieces, options, 14) == ExitCode::kStoppedEarly) {
    options.resume = true;
    ASSERT_LT(++pieces_run, 100);
  }
  EXPECT_GE(pieces_run, 3);
  expect_equal_runs(whole, pieces, "in pieces");
}

TEST_P(TrainerTest, StepsEndTheProcessAndTheScheduleFollowsTheRun) {
  const std::string whole = runs_.file("whole"), halves = runs_.file("halves");
  ASSERT_EQ(run(experiment(), whole, {}), ExitCode::kFinished);
  TrainerOptions options;
  for (const std::int64_t steps : {3, 7, 12, 14}) {
    options.steps = steps;
    ASSERT_EQ(run(experiment(), halves, options), ExitCode::kFinished);
    options.resume = true;
  }
  expect_equal_runs(whole, halves, "in three parts");
  options.steps = -1;
  EXPECT_EQ(run(experiment(), halves, options), ExitCode::kFinished);  // done is done
  expect_equal_runs(whole, halves, "resumed when finished");
}

TEST_P(TrainerTest, SignalsSaveAndStopOrSaveAndGoOn) {
  const std::string out = runs_.file("out");
  SignalRequests::clear();
  TrainerHooks hooks;
  hooks.on_progress = [](const Progress& p) {
    if (p.step == 2) SignalRequests::request_checkpoint();
    if (p.step == 8) SignalRequests::request_stop(SIGTERM);
  };
  EXPECT_EQ(run(experiment(), out, {}, -1, hooks), ExitCode::kStoppedEarly);
  SignalRequests::clear();
  // A request is served when the steps that are queued have finished.
  const std::vector<std::int64_t> steps = RunDirectory::steps(out);
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_TRUE(steps[2] == 2 || (steps[2] == 3 && GetParam() == "cuda")) << steps[2];
  EXPECT_EQ(steps[1], 5);
  EXPECT_EQ(steps[0], 8);
}

TEST_P(TrainerTest, FromABinAloneWeightsGoOnAndItSaysSo) {
  const std::string first = runs_.file("first"), second = runs_.file("second");
  TrainerOptions options;
  options.steps = 5;
  ASSERT_EQ(run(experiment(), first, options), ExitCode::kFinished);
  options = {};
  options.from = first + "/step_000005.bin";
  events_.clear();
  EXPECT_EQ(run(experiment(), second, options), ExitCode::kFinished);
  const std::string said = nlohmann::json(events_).dump();
  EXPECT_HAS(said, "starts anew");
  EXPECT_EQ(nlohmann::json::parse(read_bytes(second + "/tiny.loss.json")).at(0).at(0), 5);
}

TEST_P(TrainerTest, TheResumeTable) {
  const std::string out = runs_.file("out");
  TrainerOptions first;
  first.steps = 10;
  ASSERT_EQ(run(experiment(), out, first), ExitCode::kFinished);
  EXPECT_THROW(run(experiment(), out, first), ConfigError);  // a run is in it and --resume is missing

  TrainerOptions resume;
  resume.resume = true;
  resume.steps = 10;  // nothing is trained: only the checks
  Experiment e = experiment();
  e.model.n_layer = 2;
  EXPECT_THROW(run(e, out, resume), ConfigError);

  e = experiment();
  e.train.lr.peak = 1e-3;
  const std::string message = testing::message_of<ConfigError>([&] { run(e, out, resume); });
  EXPECT_HAS(message, "train.lr.peak");
  EXPECT_HAS(message, "--allow-config-change");
  TrainerOptions allowed = resume;
  allowed.allow_config_change = true;
  EXPECT_EQ(run(e, out, allowed), ExitCode::kFinished);

  const std::string before = read_bytes(data_.file("b.btok"));
  write_bytes(data_.file("b.btok"), testing::btok_bytes(testing::documents_of_lengths({30, 2, 2, 60, 8})));
  EXPECT_HAS(testing::message_of<DataError>([&] { run(experiment(), out, resume); }), "source b");
  allowed = resume;
  allowed.allow_data_change = true;
  EXPECT_EQ(run(experiment(), out, allowed), ExitCode::kFinished);
  write_bytes(data_.file("b.btok"), before);

  // A flipped byte in the newest .bin: the next older one is taken, and nothing is deleted.
  const std::string newest = out + "/step_000010.bin";
  std::string bytes = read_bytes(newest);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::filesystem::remove(newest);  // tiny-best.bin may be a link to it
  write_bytes(newest, bytes);
  events_.clear();
  EXPECT_EQ(run(experiment(), out, resume), ExitCode::kFinished);
  const std::string said = nlohmann::json(events_).dump();
  EXPECT_HAS(said, "passed over step_000010");
  EXPECT_HAS(said, "resumed at step 5");
}

TEST_P(TrainerTest, TheGateStopsACollapsedRunAndAsksForAPerson) {
  Experiment e = experiment();
  e.samples.every = 2;
  e.samples.patience = 3;
  e.data.tokenizer = "tokenizer";
  const std::string out = runs_.file("out");
  TextCodec codec;
  codec.vocab_size = 300;
  codec.hash = 7;
  codec.encode = [](const std::string&) { return std::vector<std::int32_t>{}; };
  codec.decode = [](const std::vector<std::int32_t>& ids) { return std::string(ids.size(), 'x'); };
  EngineOptions engine_options;
  engine_options.device = GetParam();
  engine_options.threads = 1;
  int scored = 0, without_verdict = 0;  // the second score of the first run is none: that resets no count
  const auto go = [&](const TrainerOptions& options, double score) {
    Engine engine(e, engine_options);
    TrainerHooks hooks;
    hooks.score = [&, score](const std::string&) {
      if (++scored != 2) return Coherence{score, "{\"score\": 1}"};
      ++without_verdict;
      return Coherence{std::nan(""), "null"};
    };
    return Trainer(engine, options, &codec, hooks).run();
  };
  TrainerOptions options;
  options.out = out;
  EXPECT_EQ(go(options, 10), ExitCode::kStoppedByGate);
  EXPECT_EQ(RunDirectory::steps(out).front(), 8);
  EXPECT_EQ(without_verdict, 1);
  options.resume = true;
  EXPECT_EQ(go(options, 90), ExitCode::kStoppedByGate);  // refused without a word from a person
  options.past_gate = true;
  EXPECT_EQ(go(options, 90), ExitCode::kFinished);

  codec.hash = 8;
  EXPECT_HAS(testing::message_of<DataError>([&] { go(options, 90); }), "another tokenizer");
  codec.vocab_size = 301;
  EXPECT_HAS(testing::message_of<DataError>([&] { go(options, 90); }), "301");
}

TEST_P(TrainerTest, PolishArchivesSamplesAndGoesOnWithTheLosses) {
  const std::string out = runs_.file("out");
  TrainerOptions options;
  options.steps = 8;
  ASSERT_EQ(run(experiment(), out, options), ExitCode::kFinished);
  const std::string samples = read_bytes(out + "/tiny.samples.json");
  Experiment e = experiment();
  e.data.sources[0].floor = 0.5;
  e.train.steps = 20;
  options = {};
  options.resume = true;
  EXPECT_THROW(run(e, out, options), ConfigError);
  options.polish = true;
  ASSERT_EQ(run(e, out, options), ExitCode::kFinished);
  EXPECT_EQ(read_bytes(out + "/tiny.samples.until_000008.json"), samples);
  EXPECT_EQ(nlohmann::json::parse(read_bytes(out + "/tiny.loss.json")).size(), 20U);
  EXPECT_EQ(nlohmann::json::parse(read_bytes(out + "/tiny.samples.json")).size(), 4U);  // steps 12 and 18
  options.polish = false;
  EXPECT_EQ(run(e, out, options), ExitCode::kFinished);  // from now on the new config is the run's
}

TEST_P(TrainerTest, ADivergedRunEndsWithAnError) {
  Experiment e = experiment();
  e.train.lr.peak = e.train.lr.min = 1e30;
  e.train.lr.warmup_steps = 0;
  e.train.max_skipped_steps = 4;
  const std::string out = runs_.file("out");
  EXPECT_HAS(testing::message_of<DeviceError>([&] { run(e, out, {}); }), "diverged");
}

INSTANTIATE_TEST_SUITE_P(BackEnds, TrainerTest, ::testing::Values("cpu", "cuda"),
                         [](const auto& device) { return device.param; });

}  // namespace
}  // namespace andrea
