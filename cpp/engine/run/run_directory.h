// A run directory: its lock, its checkpoints, which of them can be resumed, and which are kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/experiment.h"
#include "engine/run/run_state.h"

namespace andrea {

class PosixFile;

/// step_000100 and so on; more digits when they are needed.
std::string step_stem(std::int64_t step);
/// The step in step_NNNNNN<end>, written as step_stem() writes it; -1 if the name is no such name.
std::int64_t step_of(const std::string& name, const std::string& end);

/// The newest checkpoint that verifies, and why newer ones were passed over.
struct Resumable {
  RunState state;
  std::string bin_path;
  std::vector<std::string> passed_over;  ///< "step_000200: state file missing"; nothing is deleted
};

class RunDirectory {
 public:
  /// Opens or makes the directory and takes its lock (flock; a lock of a dead process is free). IoError if
  /// another process writes there: names its pid. ConfigError if `resume` is false and a run is in it.
  RunDirectory(const std::string& path, const std::string& name, bool resume);
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& suffix) const;  ///< path/<name><suffix>, such as ".loss.json"

  /// Steps of the state files here, newest first, verified or not. Static: also for readers without a lock.
  static std::vector<std::int64_t> steps(const std::string& path);

  /// Newest pair whose files are whole and match their hashes; empty if there is none at all.
  /// CheckpointError if there are pairs and none verifies. `n_params` as the model has it.
  std::optional<Resumable> newest(std::int32_t n_params) const;

  /// Commits state.json for a .bin already written: removes an old state of that step first (before the .bin
  /// is written: call prepare), temp, fsync, rename, fsync. IoError on failure.
  void prepare(std::int64_t step);
  std::string bin_path(std::int64_t step) const;
  std::string state_path(std::int64_t step) const;
  void commit(const RunState& state);

  /// Hard link (else copy) <name><suffix>.bin -> the step's .bin, atomically. suffix "" or "-best".
  void link(std::int64_t step, const std::string& suffix);

  /// Deletes what retention does not keep: keeps the last `keep_last`, every `keep_every`-th, best, final,
  /// and never goes below two checkpoints that verify.
  void prune(const CheckpointConfig& config, std::int64_t best_step, std::int64_t final_step);

 private:
  std::string path_;
  std::string name_;
  std::unique_ptr<PosixFile> lock_;
};

}  // namespace andrea
