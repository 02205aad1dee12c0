// step_NNNNNN.state.json: all that the .bin does not hold and a bit-exact resume needs. Its rename commits a
// checkpoint. A missing field is an error, never a default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/loader.h"
#include "kernels/gemm_choices.h"

namespace andrea {

struct SourceState {
  std::string name;
  Cursor cursor;
  std::uint64_t content_hash = 0;            ///< of the .btok
  std::optional<std::uint64_t> eval_hash{};  ///< of the held-out .btok; none: not evaluated, or format < 3
};

struct RunState {
  std::int64_t step = 0;  ///< finished steps
  std::uint64_t bin_hash = 0;
  std::uint64_t tokenizer_hash = 0;
  std::string config;  ///< effective config, sorted compact JSON
  std::vector<SourceState> sources;
  std::string curriculum;  ///< JSON of the policy's state and of the records since; "null" if there is none
  float loss_scale = 1;
  std::int32_t good_steps = 0;
  std::int64_t skipped_total = 0;
  std::int64_t skipped_in_a_row = 0;
  float last_loss = 0;  ///< of the last step that was applied: what a sample made at this step shows
  bool has_smma = false;
  double smma = 0;
  double best_smma = 0;  ///< lowest SMMA among the checkpoints written; valid if best_step >= 0
  std::int64_t best_step = -1;
  std::int64_t gate_failures = 0;  ///< coherence failures in a row
  bool stopped_by_gate = false;
  bool finished = false;
  bool edge_pending =
      false;  ///< evaluation and samples due at `step` were put off by a signal: do them first
  std::int64_t not_reproducible_from =
      -1;  ///< step from which a proxy fault makes the run unrepeatable; -1: none
  std::vector<std::pair<std::string, std::int64_t>> history_bytes;  ///< file name, length at this step
  std::string version;                                              ///< of andrea
  std::string device;                                               ///< name
  std::string arithmetic;                                           ///< DeviceInfo::arithmetic
  std::string precision;
  std::string recompute;  ///< level of the plan; empty in a state of format 1
  GemmChoices gemm;       ///< of the products made until then; empty in a state of format 1
  std::int64_t threads = 0;
  std::int64_t written_unix = 0;  ///< seconds
};

std::string to_json(const RunState& state);
/// CheckpointError names the field that is missing or wrong.
RunState parse_run_state(const std::string& text, const std::string& path);

}  // namespace andrea
