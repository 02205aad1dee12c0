// What chooses the weights of the sources, seen from the trainer: in this process, in Python, or behind a
// proxy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/config/experiment.h"
#include "engine/data/loader.h"

namespace andrea {

/// What a policy may know of a source.
struct SourceInfo {
  std::string name;
  std::int64_t n_docs = 0;
  std::int64_t n_tokens = 0;
  std::int64_t n_bytes = 0;
};

/// A stretch of steps with constant weights.
struct Phase {
  std::int64_t first_step = 0;
  std::int64_t steps = 0;
  std::vector<double> weights;  ///< relative, one a source
  std::string log = "null";     ///< JSON of the decision with its reasons, for rows.jsonl
};

/// Called once a phase. The weights of the phase that starts at step s depend on records of steps <= s-2
/// only, so the trainer asks while step s-1 still runs. A pure function of its state and the records.
class Policy {
 public:
  virtual ~Policy() = default;
  /// `records`: the rows finished since the last call, in order. Rows of skipped steps have consumed their
  /// documents, but have no loss (NaN).
  virtual Phase begin_phase(std::int64_t step, const std::vector<Row>& records) = 0;
  /// JSON. restore(state()) and the same calls give the same phases.
  virtual std::string state() const = 0;
  virtual void restore(const std::string& state) = 0;
  /// Step from which the run can no longer be repeated exactly (a proxy did not answer); -1: it can.
  virtual std::int64_t not_reproducible_from() const { return -1; }
};

/// uniform, proportional (to tokens) or fixed (the sources' weights): one endless phase. ConfigError for
/// others.
std::unique_ptr<Policy> make_constant_policy(const Experiment& experiment,
                                             const std::vector<SourceInfo>& sources);

}  // namespace andrea
