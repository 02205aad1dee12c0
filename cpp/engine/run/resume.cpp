#include "engine/run/resume.h"

#include <algorithm>
#include <filesystem>

#include "engine/errors.h"
#include "engine/hash/xxh64.h"
#include "engine/run/trainer.h"

namespace andrea {
namespace {

bool begins_with(const std::string& text, const std::string& start) {
  return text.compare(0, start.size(), start) == 0;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

void check_config(const RunState& state, const Engine& engine, const TrainerOptions& options,
                  ResumeCheck* check) {
  std::vector<std::string> shape, others;
  for (const std::string& difference :
       config_differences(state.config, engine.experiment().effective_json())) {
    const std::string key = difference.substr(0, difference.find(':'));
    if (key == "train.recompute") continue;  // the level of the plan is compared, whoever chose it
    if (key == "train.seed") check->order_changed = true;
    if (begins_with(key, "data.") || begins_with(key, "curriculum.")) check->rules_changed = true;
    if (key == "train.precision" || key == "train.allow_tf32")
      check->warnings.push_back("not bit-exact from here: " + difference);
    else
      (begins_with(key, "model.") ? shape : others).push_back(difference);
  }
  if (!shape.empty())
    throw ConfigError("this checkpoint is of another model:" + joined(shape) +
                      "\nUse the experiment it was trained with, or a new --out");
  if (others.empty()) return;
  if (!options.allow_config_change && !options.polish)
    throw ConfigError("the experiment changed since this run was started:" + joined(others) +
                      "\nTake the changes back, or accept them with --allow-config-change");
  for (const std::string& difference : others) check->warnings.push_back("config changed: " + difference);
}

std::string change_of(const std::string& what, const BtokFile& file, std::uint64_t before) {
  return what + " (" + file.path() + " has content hash " + hash_hex(file.content_hash()) + ", the run had " +
         hash_hex(before) + ")";
}

void check_data(const RunState& state, Engine& engine, std::uint64_t tokenizer_hash,
                const std::vector<std::optional<BtokFile>>& eval_files, const TrainerOptions& options,
                ResumeCheck* check) {
  std::vector<std::string> changes;
  if (state.tokenizer_hash != tokenizer_hash)
    changes.push_back("the tokenizer (hash " + hash_hex(tokenizer_hash) + ", the run had " +
                      hash_hex(state.tokenizer_hash) + ")");
  const auto& sources = engine.loader().sources();
  for (std::size_t k = 0; k < sources.size(); ++k) {
    const Loader::Source& source = sources[k];
    const auto old = std::find_if(state.sources.begin(), state.sources.end(),
                                  [&](const SourceState& s) { return s.name == source.name; });
    if (old == state.sources.end()) {  // the config check has seen it
      check->cursors.emplace_back();
      check->rules_changed = true;
      continue;
    }
    if (const auto& file = eval_files[k]; file && old->eval_hash && *old->eval_hash != file->content_hash())
      changes.push_back(change_of("held-out text of source " + source.name, *file, *old->eval_hash));
    if (old->content_hash == source.file.content_hash()) {
      // Another seed is another order, in which the old place means nothing.
      check->cursors.push_back(check->order_changed ? Cursor{old->cursor.epoch + 1, 0, 0} : old->cursor);
      continue;
    }
    changes.push_back(change_of("source " + source.name, source.file, old->content_hash));
    // Other documents: their order starts anew, in a later epoch than any that was read.
    check->cursors.push_back({old->cursor.epoch + 1, 0, 0});
  }
  if (state.sources.size() != sources.size()) check->rules_changed = true;
  if (changes.empty()) return;
  if (!options.allow_data_change)
    throw DataError("the data changed since this run was started:" + joined(changes) +
                    "\nBring the old files back, or accept the new ones with --allow-data-change");
  for (const std::string& change : changes) check->warnings.push_back("data changed: " + change);
}

}  // namespace

ResumeCheck check_resume(const RunState& state, Engine& engine, std::uint64_t tokenizer_hash,
                         const std::vector<std::optional<BtokFile>>& eval_files,
                         const TrainerOptions& options) {
  ResumeCheck check;
  check_config(state, engine, options, &check);
  check_data(state, engine, tokenizer_hash, eval_files, options, &check);
  const DeviceInfo device = engine.device_info();
  if (state.arithmetic != device.arithmetic)
    check.warnings.push_back("not bit-exact from here: the run was on " + state.device + " (" +
                             state.arithmetic + "), this is " + device.name + " (" + device.arithmetic + ")");
  if (state.version != ANDREA_VERSION)
    check.warnings.push_back("not bit-exact from here: written by version " + state.version + ", this is " +
                             ANDREA_VERSION);
  const char* level = recompute_key(engine.plan().request.recompute);
  const Precision precision = engine.experiment().train.precision;
  if (!state.recompute.empty() && state.recompute != level &&
      (precision == Precision::kFp16 || precision == Precision::kBf16))
    check.warnings.push_back(
        "perhaps not bit-exact from here: the backward pass computed again \"" + state.recompute +
        "\", now \"" + level +
        "\", and in 16 bits a wide model takes GELU's derivative from another kernel then; set " +
        "train.recompute to \"" + state.recompute + "\" to go on as before");
  return check;
}

std::string gemm_warning(const GemmChoices& then, const GemmChoices& now) {
  const std::vector<std::string> lines = gemm_differences(then, now);
  if (lines.empty()) return "";
  constexpr std::size_t kShown = 4;
  std::string text = "not bit-exact from here: the sums of matrix products are added in another order:";
  for (std::size_t i = 0; i < std::min(kShown, lines.size()); ++i) text += "\n  " + lines[i];
  if (lines.size() > kShown) text += "\n  and " + std::to_string(lines.size() - kShown) + " more";
  return text;
}

void archive_for_polish(const RunDirectory& directory, std::int64_t step) {
  namespace fs = std::filesystem;
  for (const char* kind : {".samples", ".state"}) {
    const std::string from = directory.file(std::string(kind) + ".json");
    const std::string to = directory.file(std::string(kind) + ".until" + step_stem(step).substr(4) + ".json");
    std::error_code error;
    if (!fs::exists(from, error) || fs::exists(to, error)) continue;  // nothing to keep, or kept already
    fs::rename(from, to, error);
    if (error) throw IoError("cannot archive " + from + " as " + to + ": " + error.message());
  }
}

}  // namespace andrea
