#include "engine/config/experiment.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <sstream>
#include <utility>

#include "engine/config/fields.h"
#include "engine/errors.h"
#include "engine/files/json_text.h"
#include "engine/files/posix_file.h"
#include "engine/run/history.h"
#include "kernels/backend.h"

namespace andrea {
namespace {

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kUint32Max = std::numeric_limits<std::uint32_t>::max();
// Far beyond any machine, and small enough that no product of sizes below leaves 64 bits.
constexpr std::int64_t kLargestCount = std::int64_t{1} << 20;
constexpr double kLargestElements = 0x1.0p50;
constexpr double kLargestNumber = 1e30;
constexpr std::int64_t kLargestFile = std::int64_t{16} << 20;

const std::vector<std::string> kPolicies{"ucb1_dice", "uniform", "proportional", "fixed"};
const std::vector<std::string> kPrecisions{"fp32", "fp16", "bf16", "fp8"};
const std::vector<std::string> kRecompute{"auto", "nothing", "gelu", "cheap", "layer"};

/// Where each key belongs, to help with one that stands in the wrong section.
const std::vector<std::string>& all_keys() {
  static const std::vector<std::pair<std::string, std::string>> sections{
      {"", "name"},
      {"model", "d_model n_head n_layer context vocab_size tie_embeddings"},
      {"train",
       "steps batch_size micro_batches precision allow_tf32 recompute seed clip_norm max_skipped_steps smma "
       "lr adamw "
       "eval_every eval_batches"},
      {"train.lr", "peak min warmup_steps"},
      {"train.adamw", "beta1 beta2 eps weight_decay"},
      {"data", "tokenizer sources"},
      {"data.sources[]", "train eval floor cap weight"},
      {"curriculum",
       "policy ucb_c ema_alpha reward_scale background_weight phases curriculum_warmup_steps "
       "curriculum_warmup_sources discount epoch_penalty reward reward_unit reward_sign"},
      {"curriculum.phases[]", "dice"},
      {"samples", "sample_every tokens temperature top_k prompts threshold patience"},
      {"checkpoint", "every min_seconds keep_last keep_every"},
  };
  static const std::vector<std::string> keys = [] {
    std::vector<std::string> paths;
    for (const auto& [section, names] : sections) {
      std::istringstream words(names);
      for (std::string name; words >> name;) paths.push_back(section.empty() ? name : section + "." + name);
    }
    return paths;
  }();
  return keys;
}

std::string number_text(std::int64_t value) { return std::to_string(value); }

/// The name becomes the beginning of file names in the run directory.
void check_name(const std::string& name, Faults* faults) {
  const bool letters_only =
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
      std::string::npos;
  if (name.empty() || name.size() > 100 || !letters_only || name[0] == '.' || name[0] == '-')
    faults->add("name",
                "is " + json_quote(name.substr(0, 60)) +
                    "; it begins file names, so it has 1 to 100 letters, digits, '.', '_' or '-' and " +
                    "begins with a letter, a digit or '_'");
  else if (name.compare(0, 5, "step_") == 0)
    faults->add("name", "is " + json_quote(name) + "; names that begin with step_ are those of checkpoints");
}

void read_model(const Json* object, ModelConfig* model, Faults* faults) {
  Fields fields(object, "model", faults);
  fields.integer("d_model", &model->d_model, 1, 65536, true);
  fields.integer("n_head", &model->n_head, 1, 65536, true);
  fields.integer("n_layer", &model->n_layer, 1, 4096, true);
  fields.integer("context", &model->context, 1, kLargestCount, true);
  fields.integer("vocab_size", &model->vocab_size, 2, kInt32Max, true);
  fields.boolean("tie_embeddings", &model->tie_embeddings);
  fields.finish(all_keys());
  const std::int64_t d = model->d_model;
  if (d > 0 && model->n_head > 0 && d % model->n_head != 0)
    fields.fault("n_head", "is " + number_text(model->n_head) + ", which does not divide d_model " +
                               number_text(d) + "; each head needs d_model / n_head whole columns");
  if (d > 0 && model->n_layer > 0 && model->context > 0 && model->vocab_size > 0) {
    const std::int64_t heads = model->tie_embeddings ? 1 : 2;
    const std::int64_t n_params =
        heads * model->vocab_size * d + model->context * d + model->n_layer * (12 * d * d + 4 * d) + 2 * d;
    if (n_params > kInt32Max)
      faults->add("model", "has " + number_text(n_params) + " parameters; a checkpoint counts at most " +
                               number_text(kInt32Max) + ": make d_model, n_layer or vocab_size smaller");
  }
}

void read_train(const Json* object, TrainConfig* train, Faults* faults) {
  Fields fields(object, "train", faults);
  fields.integer("steps", &train->steps, 1, kInt32Max, true);
  fields.integer("batch_size", &train->batch_size, 1, kLargestCount, true);
  fields.integer("micro_batches", &train->micro_batches, 1, kLargestCount);
  std::string precision = "fp32";
  fields.choice("precision", &precision, kPrecisions);
  train->precision = parse_precision(precision);
  fields.boolean("allow_tf32", &train->allow_tf32);
  fields.choice("recompute", &train->recompute, kRecompute);
  std::int64_t seed = train->seed;
  fields.integer("seed", &seed, 0, kUint32Max);
  train->seed = static_cast<std::uint32_t>(seed);
  fields.number("clip_norm", &train->clip_norm, 1e-30, kLargestNumber);
  fields.integer("max_skipped_steps", &train->max_skipped_steps, 1, kInt32Max);
  fields.integer("smma", &train->smma, 1, kInt32Max);
  fields.integer("eval_every", &train->eval_every, 0, kInt32Max);
  fields.integer("eval_batches", &train->eval_batches, 1, kInt32Max);

  Fields lr(fields.object("lr"), fields.path("lr"), faults);
  lr.number("peak", &train->lr.peak, 0, 1e6);
  lr.number("min", &train->lr.min, 0, 1e6);
  lr.integer("warmup_steps", &train->lr.warmup_steps, 0, kInt32Max);
  lr.finish(all_keys());
  if (train->lr.min > train->lr.peak)
    lr.fault("min", "is " + shortest(train->lr.min) + (lr.has("min") ? "" : " (the default)") +
                        ", above peak " + shortest(train->lr.peak) +
                        (lr.has("peak") ? "" : " (the default)"));

  Fields adamw(fields.object("adamw"), fields.path("adamw"), faults);
  // The update is made in float32, where 1 - 0.99999999 would be 0.
  adamw.number("beta1", &train->adamw.beta1, 0, 0.9999999);
  adamw.number("beta2", &train->adamw.beta2, 0, 0.9999999);
  adamw.number("eps", &train->adamw.eps, 1e-30, 1.0);
  adamw.number("weight_decay", &train->adamw.weight_decay, 0, 1e6);
  adamw.finish(all_keys());
  fields.finish(all_keys());
}

void check_sizes(const Experiment& experiment, Faults* faults) {
  const ModelConfig& model = experiment.model;
  const auto tokens = static_cast<double>(experiment.train.batch_size) * static_cast<double>(model.context);
  const double widest =
      std::max(static_cast<double>(model.vocab_size),
               16.0 * static_cast<double>(model.d_model) * static_cast<double>(model.n_layer));
  if (tokens * widest > kLargestElements ||
      tokens * static_cast<double>(experiment.train.micro_batches) > kLargestElements)
    faults->add("train.batch_size", "with this model and context needs more than 2^50 numbers a step; make " +
                                        std::string("batch_size, micro_batches or model.context smaller"));
}

/// A path relative to the experiment file's directory, made absolute and plain.
std::string resolved(const std::string& path, const std::string& directory) {
  if (path.empty()) return path;
  return std::filesystem::absolute(std::filesystem::path(directory) / path).lexically_normal().string();
}

void check_path_key(Fields* fields, const char* key, const std::string& path) {
  if (path.find('\0') != std::string::npos) fields->fault(key, "holds a NUL character; no path can");
}

SourceConfig read_source(const Json& object, const std::string& path, const std::string& directory,
                         Faults* faults) {
  SourceConfig source;
  Fields fields(&object, path, faults);
  fields.text("name", &source.name, true);
  fields.text("train", &source.train, true);
  fields.text("eval", &source.eval);
  fields.number("floor", &source.floor, 0, kLargestNumber);
  fields.number("cap", &source.cap, 0, kLargestNumber);
  double weight = 1;
  fields.number("weight", &weight, 0, kLargestNumber);
  if (fields.has("weight")) source.weight = weight;
  fields.finish(all_keys());
  if (fields.has("name") && (source.name.empty() || source.name.size() > 200 ||
                             std::any_of(source.name.begin(), source.name.end(),
                                         [](char c) { return static_cast<unsigned char>(c) < 0x20; })))
    fields.fault("name", "must have 1 to 200 bytes and no control characters");
  if (fields.has("train") && source.train.empty()) fields.fault("train", "is empty; name a .btok file");
  check_path_key(&fields, "train", source.train);
  check_path_key(&fields, "eval", source.eval);
  if (source.floor > source.cap)
    fields.fault("floor", "is " + shortest(source.floor) + ", above cap " + shortest(source.cap) +
                              (fields.has("cap") ? "" : " (the default)"));
  source.train = resolved(source.train, directory);
  source.eval = resolved(source.eval, directory);
  return source;
}

void read_data(const Json* object, const std::string& directory, DataConfig* data, Faults* faults) {
  Fields fields(object, "data", faults);
  fields.text("tokenizer", &data->tokenizer);
  check_path_key(&fields, "tokenizer", data->tokenizer);
  data->tokenizer = resolved(data->tokenizer, directory);
  const bool there = fields.array("sources", [&](const Json& element, const std::string& path) {
    data->sources.push_back(read_source(element, path, directory, faults));
  });
  if (there && data->sources.empty()) fields.fault("sources", "is empty; list at least one source");
  std::set<std::string> names;
  for (std::size_t k = 0; k < data->sources.size(); ++k) {
    const std::string& name = data->sources[k].name;
    if (!name.empty() && !names.insert(name).second)
      fields.fault("sources[" + std::to_string(k) + "].name",
                   "is " + json_quote(name) + ", as an earlier source is called; names tell sources apart");
  }
  fields.finish(all_keys());
}

void read_curriculum(const Json* object, CurriculumConfig* curriculum, Faults* faults) {
  Fields fields(object, "curriculum", faults);
  fields.choice("policy", &curriculum->policy, kPolicies);
  if (const Json* value = fields.find("ucb_c"); value != nullptr) {
    if (value->is_number()) {
      double c = 0;
      fields.number("ucb_c", &c, 0, kLargestNumber);
      curriculum->ucb_c = c;
    } else if (!value->is_string() || value->get<std::string>() != "auto") {
      fields.fault("ucb_c", "must be \"auto\" or a number from 0");
    }
  }
  fields.number("ema_alpha", &curriculum->ema_alpha, 0, 1, true);
  fields.number("reward_scale", &curriculum->reward_scale, 0, kLargestNumber, true);
  fields.number("background_weight", &curriculum->background_weight, 0, kLargestNumber);
  std::vector<PhaseConfig> phases;
  const bool there = fields.array("phases", [&](const Json& element, const std::string& path) {
    PhaseConfig phase;
    Fields row(&element, path, faults);
    row.integer("steps", &phase.steps, 1, kInt32Max, true);
    row.integer("dice", &phase.dice, 1, 1000, true);
    row.finish(all_keys());
    phases.push_back(phase);
  });
  if (there) {
    if (phases.empty()) fields.fault("phases", "is empty; list at least one {\"steps\", \"dice\"}");
    curriculum->phases = std::move(phases);
  }
  fields.integer("curriculum_warmup_steps", &curriculum->warmup_steps, 0, kInt32Max);
  fields.texts("curriculum_warmup_sources", &curriculum->warmup_sources);
  fields.number("discount", &curriculum->discount, 0, 1, true);
  fields.choice("epoch_penalty", &curriculum->epoch_penalty, {"reciprocal", "exponential"});
  fields.choice("reward", &curriculum->reward, {"row", "phase_mean"});
  fields.choice("reward_unit", &curriculum->reward_unit, {"token", "byte"});
  fields.choice("reward_sign", &curriculum->reward_sign, {"gain", "change"});
  fields.finish(all_keys());
}

/// What only the sources and the curriculum together show.
void check_curriculum(const Experiment& experiment, Faults* faults) {
  const CurriculumConfig& curriculum = experiment.curriculum;
  const std::vector<SourceConfig>& sources = experiment.data.sources;
  if (sources.empty()) return;
  std::vector<std::string> names;
  for (const SourceConfig& source : sources) names.push_back(source.name);
  std::set<std::string> warmup;
  for (std::size_t i = 0; i < curriculum.warmup_sources.size(); ++i) {
    const std::string& name = curriculum.warmup_sources[i];
    const std::string path = "curriculum.curriculum_warmup_sources[" + std::to_string(i) + "]";
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      const std::string near = nearest(name, names);
      faults->add(path, "is " + json_quote(name) + ", which is no source of data.sources" +
                            (near.empty() ? "" : "; did you mean " + json_quote(near) + "?") +
                            " (there are: " + quoted_list(names) + ")");
    } else if (!warmup.insert(name).second) {
      faults->add(path, "is " + json_quote(name) + ", which stands in the list already");
    }
  }
  double fixed = 0;
  double caps = 0;
  double warmup_caps = 0;
  for (const SourceConfig& source : sources) {
    fixed += source.weight.value_or(1.0);
    caps += source.cap;
    if (warmup.empty() || warmup.count(source.name) > 0) warmup_caps += source.cap;
  }
  if (curriculum.policy == "fixed" && !(fixed > 0))
    faults->add("data.sources", "all weights are 0; policy \"fixed\" needs one above 0");
  if (curriculum.policy == "ucb1_dice") {
    if (!(caps > 0))
      faults->add("data.sources", "all caps are 0, so no source could ever be drawn; raise one cap");
    else if (curriculum.warmup_steps > 0 && !(warmup_caps > 0))
      faults->add("curriculum.curriculum_warmup_sources",
                  "all these sources have cap 0, so nothing could be drawn in the warm-up; raise one cap");
  }
}

void read_samples(const Json* object, SamplesConfig* samples, Faults* faults) {
  Fields fields(object, "samples", faults);
  fields.integer("sample_every", &samples->every, 0, kInt32Max);
  fields.integer("tokens", &samples->tokens, 1, kLargestCount);
  fields.number("temperature", &samples->temperature, 0, 1e6);
  fields.integer("top_k", &samples->top_k, 0, kInt32Max);
  fields.texts("prompts", &samples->prompts);
  if (samples->prompts.empty()) fields.fault("prompts", "is empty; [\"\"] samples from nothing");
  fields.number("threshold", &samples->threshold, 0, 100);
  fields.integer("patience", &samples->patience, 1, kInt32Max);
  fields.finish(all_keys());
}

void read_checkpoint_config(const Json* object, CheckpointConfig* checkpoint, Faults* faults) {
  Fields fields(object, "checkpoint", faults);
  fields.integer("every", &checkpoint->every, 1, kInt32Max);
  fields.number("min_seconds", &checkpoint->min_seconds, 0, 1e9);
  fields.integer("keep_last", &checkpoint->keep_last, 1, kInt32Max);
  fields.integer("keep_every", &checkpoint->keep_every, 0, kInt32Max);
  fields.finish(all_keys());
}

[[noreturn]] void refuse(const std::string& origin, const std::vector<std::string>& faults) {
  std::string message = origin + ": ";
  if (faults.size() == 1) throw ConfigError(message + faults.front());
  message += std::to_string(faults.size()) + " faults";
  for (const std::string& fault : faults) message += "\n  " + fault;
  throw ConfigError(message);
}

}  // namespace

std::string parse_recompute(const std::string& name) {
  if (std::find(kRecompute.begin(), kRecompute.end(), name) != kRecompute.end()) return name;
  throw ConfigError("recompute " + json_quote(name) + " is unknown; there are " + quoted_list(kRecompute));
}

Precision parse_precision(const std::string& name) {
  if (name == "fp32") return Precision::kFp32;
  if (name == "fp16") return Precision::kFp16;
  if (name == "bf16") return Precision::kBf16;
  if (name == "fp8") return Precision::kFp8;
  throw ConfigError("precision " + json_quote(name) + " is unknown; there are " + quoted_list(kPrecisions));
}

Experiment parse_experiment(const std::string& text, const std::string& directory,
                            const std::string& origin) {
  std::vector<JsonFault> text_faults;
  const Json root = parse_json(text, &text_faults);
  Faults faults;
  for (const JsonFault& fault : text_faults) faults.lines.push_back(describe(fault));
  // After a syntax error the rest is guesswork; a key that stands twice leaves the others readable.
  const bool broken =
      std::any_of(text_faults.begin(), text_faults.end(), [](const JsonFault& fault) { return fault.fatal; });
  if (broken) refuse(origin, faults.lines);

  Experiment experiment;
  experiment.origin = origin;
  Fields fields(&root, "", &faults);
  fields.text("name", &experiment.name, true);
  if (fields.has("name") && root["name"].is_string()) check_name(experiment.name, &faults);
  const auto section = [&](const char* key, bool required) { return fields.object(key, required); };
  if (const Json* model = section("model", true)) read_model(model, &experiment.model, &faults);
  if (const Json* train = section("train", true)) read_train(train, &experiment.train, &faults);
  read_data(section("data", false), directory, &experiment.data, &faults);
  read_curriculum(section("curriculum", false), &experiment.curriculum, &faults);
  read_samples(section("samples", false), &experiment.samples, &faults);
  read_checkpoint_config(section("checkpoint", false), &experiment.checkpoint, &faults);
  fields.finish(all_keys());
  check_curriculum(experiment, &faults);
  check_sizes(experiment, &faults);
  if (!faults.lines.empty()) refuse(origin, faults.lines);
  return experiment;
}

Experiment load_experiment(const std::string& path) {
  check_path(path);
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      throw ConfigError("no such experiment file: " + path +
                        "; check the path, or make one with `andrea init`");
    throw_io_error("stat", path, errno);
  }
  if (S_ISDIR(status.st_mode))
    throw ConfigError(path + " is a directory; name the experiment file (ANDREA-*-TRAIN.json) in it");
  if (!S_ISREG(status.st_mode)) throw ConfigError(path + " is not a regular file; name an experiment file");
  if (status.st_size > kLargestFile)
    throw ConfigError(path + " has " + std::to_string(status.st_size) +
                      " bytes; an experiment file has a few thousand. Is it the right file?");
  PosixFile file = PosixFile::open(path, O_RDONLY | O_NONBLOCK);
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  text.resize(file.read(text.data(), text.size()));
  return parse_experiment(text, directory_of(path), path);
}

}  // namespace andrea
