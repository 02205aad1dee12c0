// The effective config as text, and in which keys two of them differ.
#include <algorithm>
#include <map>

#include "engine/config/experiment.h"
#include "engine/errors.h"
#include "engine/files/json_text.h"
#include "kernels/backend.h"

namespace andrea {
namespace {

using Leaves = std::map<std::string, std::string>;

bool is_path_of_data(const std::string& path) {
  return path == "data.tokenizer" ||
         (path.compare(0, 13, "data.sources[") == 0 &&
          (path.find("].train") != std::string::npos || path.find("].eval") != std::string::npos));
}

/// Every value that is no object, under its JSON path. Sources are told by their place.
void collect(const Json& value, const std::string& path, Leaves* leaves) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.items())
      collect(member, path.empty() ? key : path + "." + key, leaves);
  } else if (value.is_array() && !value.empty() && value.front().is_object()) {
    for (std::size_t i = 0; i < value.size(); ++i)
      collect(value[i], path + "[" + std::to_string(i) + "]", leaves);
  } else {
    // Where the data lies may change; what is in it is compared by its hash.
    (*leaves)[path] = is_path_of_data(path) ? "a file" : canonical_json(value);
  }
}

Leaves leaves_of(const std::string& text) {
  std::vector<JsonFault> faults;
  const Json value = parse_json(text, &faults);
  if (!faults.empty()) throw CheckpointError("a stored config is no JSON: " + describe(faults.front()));
  Leaves leaves;
  collect(value, "", &leaves);
  return leaves;
}

}  // namespace

std::string Experiment::effective_json() const {
  Json object;
  object["name"] = name;
  object["model"] = {{"d_model", model.d_model},       {"n_head", model.n_head},
                     {"n_layer", model.n_layer},       {"context", model.context},
                     {"vocab_size", model.vocab_size}, {"tie_embeddings", model.tie_embeddings}};
  object["train"] = {
      {"steps", train.steps},
      {"batch_size", train.batch_size},
      {"micro_batches", train.micro_batches},
      {"precision", precision_name(train.precision)},
      {"allow_tf32", train.allow_tf32},
      {"seed", train.seed},
      {"clip_norm", train.clip_norm},
      {"max_skipped_steps", train.max_skipped_steps},
      {"smma", train.smma},
      {"lr", {{"peak", train.lr.peak}, {"min", train.lr.min}, {"warmup_steps", train.lr.warmup_steps}}},
      {"adamw",
       {{"beta1", train.adamw.beta1},
        {"beta2", train.adamw.beta2},
        {"eps", train.adamw.eps},
        {"weight_decay", train.adamw.weight_decay}}},
      {"eval_every", train.eval_every},
      {"eval_batches", train.eval_batches}};
  if (train.recompute != "auto") object["train"]["recompute"] = train.recompute;  // not in older checkpoints
  object["data"] = Json::object();
  if (!data.tokenizer.empty()) object["data"]["tokenizer"] = data.tokenizer;
  for (const SourceConfig& source : data.sources) {
    Json entry = {
        {"name", source.name}, {"train", source.train}, {"floor", source.floor}, {"cap", source.cap}};
    if (!source.eval.empty()) entry["eval"] = source.eval;
    if (source.weight) entry["weight"] = *source.weight;
    object["data"]["sources"].push_back(std::move(entry));
  }
  Json phases = Json::array();
  for (const PhaseConfig& phase : curriculum.phases)
    phases.push_back({{"steps", phase.steps}, {"dice", phase.dice}});
  object["curriculum"] = {{"policy", curriculum.policy},
                          {"ucb_c", curriculum.ucb_c ? Json(*curriculum.ucb_c) : Json("auto")},
                          {"ema_alpha", curriculum.ema_alpha},
                          {"reward_scale", curriculum.reward_scale},
                          {"background_weight", curriculum.background_weight},
                          {"phases", phases},
                          {"curriculum_warmup_steps", curriculum.warmup_steps},
                          {"curriculum_warmup_sources", curriculum.warmup_sources},
                          {"discount", curriculum.discount},
                          {"epoch_penalty", curriculum.epoch_penalty},
                          {"reward", curriculum.reward},
                          {"reward_unit", curriculum.reward_unit},
                          {"reward_sign", curriculum.reward_sign}};
  object["samples"] = {{"sample_every", samples.every},      {"tokens", samples.tokens},
                       {"temperature", samples.temperature}, {"top_k", samples.top_k},
                       {"prompts", samples.prompts},         {"threshold", samples.threshold},
                       {"patience", samples.patience}};
  object["checkpoint"] = {{"every", checkpoint.every},
                          {"min_seconds", checkpoint.min_seconds},
                          {"keep_last", checkpoint.keep_last},
                          {"keep_every", checkpoint.keep_every}};
  return canonical_json(object);
}

std::vector<std::string> config_differences(const std::string& before, const std::string& after) {
  const Leaves old_leaves = leaves_of(before);
  const Leaves new_leaves = leaves_of(after);
  Leaves all = old_leaves;
  all.insert(new_leaves.begin(), new_leaves.end());
  std::vector<std::string> differences;
  const auto value_in = [](const Leaves& leaves, const std::string& path) {
    const auto found = leaves.find(path);
    return found == leaves.end() ? std::string("(absent)") : found->second;
  };
  for (const auto& [path, unused] : all) {
    const std::string was = value_in(old_leaves, path);
    const std::string is = value_in(new_leaves, path);
    if (was != is) differences.push_back(path + ": " + was + " -> " + is);
  }
  return differences;
}

}  // namespace andrea
