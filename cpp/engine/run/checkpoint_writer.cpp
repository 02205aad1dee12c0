#include "engine/run/checkpoint_writer.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/errors.h"
#include "engine/run/checkpoint_file.h"

namespace andrea {

using Json = nlohmann::json;

CheckpointWriter::~CheckpointWriter() {
  if (work_.valid()) work_.wait();
}

void CheckpointWriter::begin(RunState state, bool best, RunLog& log) {
  const Model::Snapshot snapshot = engine_.take_snapshot();
  work_ = std::async(std::launch::async, [this, state = std::move(state), best, &log, snapshot]() mutable {
    return write(std::move(state), best, log, snapshot);
  });
  // Without a copy the next step would change the weights under the writer's hands.
  if (!engine_.snapshot_is_a_copy()) work_.wait();
}

bool CheckpointWriter::ready() const {
  return work_.valid() && work_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

CheckpointWriter::Outcome CheckpointWriter::finish() { return work_.get(); }

CheckpointWriter::Outcome CheckpointWriter::write(RunState state, bool best, RunLog& log,
                                                  const Model::Snapshot& snapshot) {
  Outcome outcome;
  outcome.path = directory_.bin_path(state.step);
  try {
    log.sync_written();
    // The same step again (a new config, or samples made up for): the weights on disk are these, and the new
    // state replaces the old one in one rename.
    if (bin_step_ != state.step) {
      directory_.prepare(state.step);
      bin_hash_ = engine_.write_snapshot(snapshot, state.step, outcome.path);
      bin_step_ = state.step;
    }
    state.bin_hash = bin_hash_;
    directory_.commit(state);
  } catch (const Error& error) {
    outcome.failure = error.what();
    return outcome;
  }
  try {
    tidy(state, best);
  } catch (const Error& error) {
    outcome.warning = error.what();
  }
  outcome.state = std::move(state);
  return outcome;
}

void CheckpointWriter::tidy(const RunState& state, bool best) {
  if (best) directory_.link(state.step, "-best");
  if (state.finished) directory_.link(state.step, "");
  const std::string readable =
      Json{{"step", state.step}, {"curriculum", Json::parse(state.curriculum)}}.dump(1) + "\n";
  write_file_atomically(directory_.file(".state.json"), readable.size(),
                        [&](const Sink& sink) { sink(readable.data(), readable.size()); });
  directory_.prune(experiment_.checkpoint, state.best_step, state.finished ? state.step : -1);
}

}  // namespace andrea
