#include "engine/run/run_directory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "engine/errors.h"
#include "engine/run/checkpoint_file.h"
#include "engine/sample_state.h"
#include "engine/scratch_directory.h"

namespace andrea {
namespace {

using namespace andrea::testing;

constexpr std::int32_t kParams = 3;

class Runs : public ::testing::Test {
 protected:
  /// Writes a whole checkpoint as the trainer does.
  static void save(RunDirectory& run, std::int64_t step, float value = 1) {
    const std::vector<float> values(kParams, value);
    run.prepare(step);
    RunState state = sample_state(step);
    state.bin_hash = write_checkpoint(run.bin_path(step), static_cast<std::int32_t>(step), kParams,
                                      values.data(), values.data(), values.data());
    run.commit(state);
  }
  static void flip(const std::string& path, std::size_t at) {
    std::string bytes = read_bytes(path);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_bytes(path, bytes);
  }
  bool exists(const std::string& name) const {
    return std::filesystem::exists(directory_.file("run/" + name));
  }

  ScratchDirectory directory_;
  std::string path_ = directory_.file("run");
};

TEST(StepStem, HasSixDigitsAndMoreWhereNeeded) {
  EXPECT_EQ(step_stem(0), "step_000000");
  EXPECT_EQ(step_stem(100), "step_000100");
  EXPECT_EQ(step_stem(1234567), "step_1234567");
}

TEST_F(Runs, TheNewestWholePairIsTaken) {
  RunDirectory run(path_, "n", false);
  EXPECT_FALSE(run.newest(kParams));
  save(run, 100, 1);
  save(run, 200, 2);
  save(run, 1000000, 3);
  EXPECT_EQ(RunDirectory::steps(path_), (std::vector<std::int64_t>{1000000, 200, 100}));
  const auto found = run.newest(kParams);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 1000000);
  EXPECT_EQ(found->bin_path, path_ + "/step_1000000.bin");
  EXPECT_TRUE(found->passed_over.empty());
}

TEST_F(Runs, DamagedPairsArePassedOverWithTheirReasonsAndNothingIsDeleted) {
  RunDirectory run(path_, "n", false);
  for (const std::int64_t step : {100, 200, 300, 400, 500, 600, 700, 800})
    save(run, step, static_cast<float>(step));
  flip(run.bin_path(800), 20);
  write_bytes(run.bin_path(700), read_bytes(run.bin_path(700)).substr(0, 30));
  std::filesystem::remove(run.state_path(600));
  std::filesystem::remove(run.bin_path(500));
  const std::string state = read_bytes(run.state_path(400));
  const std::size_t good_steps = state.find("1999");
  write_bytes(run.state_path(400), std::string(state).replace(good_steps, 4, "1998"));
  write_bytes(run.state_path(300), read_bytes(run.state_path(100)));
  write_bytes(run.bin_path(200), "");
  const auto before = directory_.names();
  const auto found = run.newest(kParams);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->state.step, 100);
  ASSERT_EQ(found->passed_over.size(), 7U);
  const char* const reasons[7][2] = {{"step_000800", "hash"},
                                     {"step_000700", "30 bytes"},
                                     {"step_000600", "state file is missing"},
                                     {"step_000500", ".bin is missing"},
                                     {"step_000400", "damaged"},
                                     {"step_000300", "state of step 100"},
                                     {"step_000200", "0 bytes"}};
  for (std::size_t i = 0; i < 7; ++i) {
    EXPECT_HAS(found->passed_over[i], reasons[i][0]);
    EXPECT_HAS(found->passed_over[i], reasons[i][1]);
  }
  EXPECT_EQ(directory_.names(), before);
}

TEST_F(Runs, IfNonePairVerifiesAllReasonsAreGiven) {
  RunDirectory run(path_, "n", false);
  save(run, 100);
  save(run, 200);
  flip(run.bin_path(100), 9);
  std::filesystem::remove(run.bin_path(200));
  const std::string message = message_of<CheckpointError>([&] { run.newest(kParams); });
  EXPECT_HAS(message, "step_000100");
  EXPECT_HAS(message, "step_000200");
  EXPECT_HAS(message, "nothing was deleted");
  EXPECT_TRUE(exists("step_000100.bin"));
}

TEST_F(Runs, AFirstCheckpointCutOffLeavesNothingToResume) {
  RunDirectory run(path_, "n", false);
  save(run, 100);
  std::filesystem::remove(run.state_path(100));
  EXPECT_FALSE(run.newest(kParams));
  save(run, 200);
  std::filesystem::remove(run.state_path(200));
  EXPECT_THROW(run.newest(kParams), CheckpointError);
}

TEST_F(Runs, AnotherShapeIsAMatterOfConfigAndNotOfDamage) {
  RunDirectory run(path_, "n", false);
  save(run, 100);
  const std::string message = message_of<ConfigError>([&] { run.newest(kParams + 1); });
  EXPECT_HAS(message, "3 parameters");
  EXPECT_HAS(message, "has 4");
}

TEST_F(Runs, ReWritingAStepNeverLeavesAStateThatDoesNotFit) {
  RunDirectory run(path_, "n", false);
  save(run, 100, 1);
  save(run, 200, 2);
  run.prepare(200);  // killed here, or after the .bin below
  EXPECT_EQ(run.newest(kParams)->state.step, 100);
  const std::vector<float> values(kParams, 5);
  write_checkpoint(run.bin_path(200), 200, kParams, values.data(), values.data(), values.data());
  EXPECT_EQ(run.newest(kParams)->state.step, 100);
  save(run, 200, 5);
  EXPECT_EQ(run.newest(kParams)->state.step, 200);
}

TEST_F(Runs, ADirectoryWithARunInItIsRefusedWithoutResume) {
  {
    RunDirectory run(path_, "n", false);
  }
  {
    RunDirectory run(path_, "n", false);
  }  // a lock file alone is no run
  for (const char* name :
       {"step_000100.bin", "step_000100.state.json", "other.loss.json", "other.rows.jsonl"}) {
    write_bytes(path_ + "/" + name, "x");
    const std::string message = message_of<ConfigError>([&] { RunDirectory(path_, "n", false); });
    EXPECT_HAS(message, name);
    EXPECT_HAS(message, "--resume");
    {
      RunDirectory run(path_, "n", true);
    }
    std::filesystem::remove(path_ + "/" + name);
  }
  write_bytes(path_ + "/notes.txt", "x");
  RunDirectory run(path_, "n", false);
}

TEST_F(Runs, ARefusedDirectoryStaysAsItWas) {
  const ScratchDirectory other;
  write_bytes(other.file("step_000100.bin"), "x");
  EXPECT_THROW(RunDirectory(other.path(), "n", false), ConfigError);
  EXPECT_EQ(other.names(), std::vector<std::string>{"step_000100.bin"});
}

TEST_F(Runs, TwoWritersAreRefusedAndThePidIsNamed) {
  RunDirectory run(path_, "n", false);
  const std::string message = message_of<IoError>([&] { RunDirectory(path_, "n", true); });
  EXPECT_HAS(message, "pid " + std::to_string(::getpid()));
}

TEST_F(Runs, TheLockOfAKilledProcessIsFree) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunDirectory run(path_, "n", false);
    [[maybe_unused]] const auto n = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_HAS(message_of<IoError>([&] { RunDirectory(path_, "n", true); }), "pid " + std::to_string(child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  RunDirectory run(path_, "n", true);
}

TEST_F(Runs, HalfWrittenFilesOfAKilledWriterAreCleared) {
  {
    RunDirectory run(path_, "n", false);
  }
  write_bytes(path_ + "/.step_000100.bin.123.tmp", "half");
  write_bytes(path_ + "/.n-best.bin.123.tmp", "half");
  write_bytes(path_ + "/.n.state.json.123.tmp", "half");
  write_bytes(path_ + "/.somebody.tmp", "not ours");
  write_bytes(path_ + "/.n.gguf.123.tmp", "an export under way");
  RunDirectory run(path_, "n", true);
  EXPECT_FALSE(exists(".step_000100.bin.123.tmp"));
  EXPECT_FALSE(exists(".n-best.bin.123.tmp"));
  EXPECT_FALSE(exists(".n.state.json.123.tmp"));
  EXPECT_TRUE(exists(".somebody.tmp"));
  EXPECT_TRUE(exists(".n.gguf.123.tmp"));
}

TEST_F(Runs, PathsInTheWayAreSaid) {
  write_bytes(path_, "a file");
  EXPECT_THROW(RunDirectory(path_, "n", false), IoError);
}

TEST_F(Runs, LinksShareTheBytesOfTheirStep) {
  RunDirectory run(path_, "n", false);
  save(run, 100, 1);
  save(run, 200, 2);
  run.link(100, "-best");
  run.link(100, "-best");  // the same again
  EXPECT_EQ(std::filesystem::hard_link_count(run.bin_path(100)), 2U);
  const std::string first = read_bytes(path_ + "/n-best.bin");
  EXPECT_EQ(first, read_bytes(run.bin_path(100)));
  save(run, 100, 7);  // a re-written step leaves the link as it was
  EXPECT_EQ(read_bytes(path_ + "/n-best.bin"), first);
  run.link(200, "-best");
  run.link(200, "");
  EXPECT_EQ(read_bytes(path_ + "/n-best.bin"), read_bytes(run.bin_path(200)));
  EXPECT_EQ(read_bytes(path_ + "/n.bin"), read_bytes(run.bin_path(200)));
  EXPECT_THROW(run.link(300, ""), IoError);
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
}

TEST_F(Runs, RetentionKeepsTheLastTheLandmarksBestAndFinal) {
  RunDirectory run(path_, "n", false);
  CheckpointConfig config;
  config.keep_last = 3;
  config.keep_every = 500;
  for (std::int64_t step = 100; step <= 1200; step += 100) save(run, step);
  run.prune(config, 300, 700);
  EXPECT_EQ(RunDirectory::steps(path_), (std::vector<std::int64_t>{1200, 1100, 1000, 700, 500, 300}));
  for (const std::int64_t step : {100, 200, 400, 600, 800, 900})
    EXPECT_FALSE(exists(step_stem(step) + ".bin"));
  for (const std::int64_t step : {300, 500, 700, 1000}) EXPECT_TRUE(exists(step_stem(step) + ".bin"));
}

TEST_F(Runs, RetentionNeverGoesBelowTwoThatVerify) {
  RunDirectory run(path_, "n", false);
  CheckpointConfig config;
  config.keep_last = 1;
  config.keep_every = 0;
  for (std::int64_t step = 100; step <= 600; step += 100) save(run, step);
  write_bytes(run.bin_path(600), "cut");
  flip(run.state_path(500), 300);
  std::filesystem::remove(run.bin_path(400));
  run.prune(config, -1, -1);
  // 600, 500 and 400 do not verify: they do not count, and what is damaged is left for a person.
  EXPECT_EQ(RunDirectory::steps(path_), (std::vector<std::int64_t>{600, 500, 400, 300, 200}));
  EXPECT_EQ(run.newest(kParams)->state.step, 300);
}

TEST_F(Runs, AnInterruptedPruneIsFinishedByTheNext) {
  RunDirectory run(path_, "n", false);
  CheckpointConfig config;
  config.keep_last = 2;
  for (const std::int64_t step : {100, 200, 300}) save(run, step);
  std::filesystem::remove(run.bin_path(100));
  run.prune(config, -1, -1);
  EXPECT_EQ(RunDirectory::steps(path_), (std::vector<std::int64_t>{300, 200}));
}

TEST_F(Runs, OtherFilesAreNoCheckpoints) {
  RunDirectory run(path_, "n", false);
  save(run, 100);
  for (const char* name : {"step_1.state.json", "step_000200.state.json.bak", "step_-00100.state.json",
                           "step_0000300.state.json", "step_99999999999.state.json", "n.state.json"})
    write_bytes(path_ + "/" + name, "x");
  EXPECT_EQ(RunDirectory::steps(path_), std::vector<std::int64_t>{100});
}

}  // namespace
}  // namespace andrea
