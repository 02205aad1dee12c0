// May this run be taken up again here, and with what? The table of docs/CHECKPOINT.md, row by row.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/engine.h"
#include "engine/run/run_directory.h"
#include "engine/run/run_state.h"

namespace andrea {

struct TrainerOptions;

struct ResumeCheck {
  std::vector<std::string> warnings;  ///< "not bit-exact from here: ..." and the like
  std::vector<Cursor> cursors;        ///< one for each source of the engine, by name; new sources begin at 0
  bool order_changed = false;         ///< another seed: each source begins a new order
  bool rules_changed = false;         ///< sources, weights or curriculum differ: a new phase has to begin
};

/// ConfigError if the shape or any other key differs (and no option allows it), DataError if the tokenizer, a
/// source or a held-out file is not the one of the checkpoint. `eval_files`: one a source, empty where
/// nothing is evaluated.
ResumeCheck check_resume(const RunState& state, Engine& engine, std::uint64_t tokenizer_hash,
                         const std::vector<std::optional<BtokFile>>& eval_files,
                         const TrainerOptions& options);

/// The warning to give where a run's products are made in another way than before its checkpoint; empty:
/// none. `now` once a step has been made: before it no product has been resolved.
std::string gemm_warning(const GemmChoices& then, const GemmChoices& now);

/// Renames <name>.samples.json and <name>.state.json to <name>.samples.until_NNNNNN.json and so on.
void archive_for_polish(const RunDirectory& directory, std::int64_t step);

}  // namespace andrea
