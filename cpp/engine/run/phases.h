// Phases of constant source weights: asks the policy when one ends, and carries its state over a resume.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/run/policy.h"

namespace andrea {

class Phases {
 public:
  explicit Phases(std::unique_ptr<Policy> policy);

  /// Before the rows of `step` are drawn. True if a new phase begins with it; then current() is the new one.
  bool advance(std::int64_t step);
  const Phase& current() const { return phase_; }
  /// Finished rows, in order; the loss is NaN where the step was skipped.
  void record(const std::vector<Row>& rows);

  /// The policy's state as it was when the phase began, the phase, and the records since, as JSON.
  std::string state() const;
  /// Takes up state(). `sources`: the names the records' indices meant then, `now` what they mean now. With
  /// `new_phase` (the sources or the rules changed) the running phase is dropped and the next step begins
  /// one.
  void restore(const std::string& state, const std::vector<std::string>& sources,
               const std::vector<std::string>& now, bool new_phase);
  std::int64_t not_reproducible_from() const { return policy_->not_reproducible_from(); }

 private:
  std::unique_ptr<Policy> policy_;
  std::string policy_state_ = "null";
  Phase phase_;
  bool in_phase_ = false;
  std::vector<Row> records_;  // not yet shown to the policy
};

}  // namespace andrea
