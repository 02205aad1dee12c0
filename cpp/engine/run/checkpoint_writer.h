// Checkpoints in the making: taken at a step edge and written by a thread, so that training can go on
// meanwhile where a snapshot is a copy.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <string>

#include "engine/model/engine.h"
#include "engine/run/run_directory.h"
#include "engine/run/run_log.h"

namespace andrea {

class CheckpointWriter {
 public:
  /// What became of a checkpoint.
  struct Outcome {
    RunState state;       ///< with bin_hash set; what the run's state is now if it was saved
    std::string path;     ///< of the .bin
    std::string failure;  ///< why it was not saved; empty: it is on disk
    std::string warning;  ///< saved, but a link or the clearing-up failed
  };

  CheckpointWriter(Engine& engine, RunDirectory& directory, const Experiment& experiment)
      : engine_(engine), directory_(directory), experiment_(experiment) {}
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// The .bin of this step is on disk already: a run was resumed from it.
  void already_written(std::int64_t step, std::uint64_t hash) { bin_step_ = step, bin_hash_ = hash; }

  /// Begins to save `state` at its step; no step may be queued, and the one before must have been finished.
  /// `best`: <name>-best.bin will point to it. `log` has been written; its files are fsynced before the state
  /// is committed.
  void begin(RunState state, bool best, RunLog& log);
  bool in_progress() const { return work_.valid(); }
  bool ready() const;
  /// Waits for it.
  Outcome finish();

 private:
  Outcome write(RunState state, bool best, RunLog& log, const Model::Snapshot& snapshot);
  void tidy(const RunState& state, bool best);

  Engine& engine_;
  RunDirectory& directory_;
  const Experiment& experiment_;
  std::future<Outcome> work_;
  std::int64_t bin_step_ = -1;  // the step whose .bin is on disk, and its hash
  std::uint64_t bin_hash_ = 0;
};

}  // namespace andrea
