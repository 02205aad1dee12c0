// One file describes a run: experiments/ANDREA-*-TRAIN.json. This is the one validator, for the binary and
// for Python alike; docs/EXPERIMENT.md lists the keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace andrea {

struct ModelConfig {
  std::int64_t d_model = 0;
  std::int64_t n_head = 0;
  std::int64_t n_layer = 0;
  std::int64_t context = 0;     ///< T, tokens
  std::int64_t vocab_size = 0;  ///< V >= 2; 257 + N when a tokenizer is used
  bool tie_embeddings = true;
};

struct LearningRateConfig {
  double peak = 3e-4;
  double min = 3e-5;
  std::int64_t warmup_steps = 2000;
};

struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.1;  ///< on matrices and embeddings only
};

struct TrainConfig {
  std::int64_t steps = 0;
  std::int64_t batch_size = 0;     ///< B, rows a micro-batch
  std::int64_t micro_batches = 1;  ///< micro-batches a step
  Precision precision = Precision::kFp32;
  bool allow_tf32 = false;
  /// What the backward pass computes again: "nothing", "gelu", "cheap", "layer", or "auto": the plan's
  /// choice.
  std::string recompute = "auto";
  std::uint32_t seed = 42;
  double clip_norm = 1.0;
  std::int64_t max_skipped_steps = 10;
  std::int64_t smma = 100;  ///< n of the smoothed moving average of the loss, steps
  LearningRateConfig lr;
  AdamWConfig adamw;
  std::int64_t eval_every = 0;    ///< steps; 0: never
  std::int64_t eval_batches = 8;  ///< batches a source
};

struct SourceConfig {
  std::string name;
  std::string train;  ///< path of a .btok, resolved
  std::string eval;   ///< path of a .btok, resolved; empty: none
  double floor = 0.0;
  double cap = 1.0;
  std::optional<double> weight;  ///< relative weight, policy "fixed" only
};

struct DataConfig {
  std::string tokenizer;  ///< path of harris_segments.json, resolved; empty: ids only
  std::vector<SourceConfig> sources;
};

/// A row of the phase table: a phase of `steps` steps rolls one die with `dice` sides.
struct PhaseConfig {
  std::int64_t steps = 0;
  std::int64_t dice = 0;
};

struct CurriculumConfig {
  std::string policy = "ucb1_dice";  ///< ucb1_dice, uniform, proportional, fixed
  std::optional<double> ucb_c;       ///< empty: "auto"
  double ema_alpha = 0.1;
  double reward_scale = 1000.0;
  double background_weight = 0.1;
  std::vector<PhaseConfig> phases{{7, 3}, {14, 3}, {21, 3}, {28, 4}, {42, 4}};
  std::int64_t warmup_steps = 20000;
  std::vector<std::string> warmup_sources;  ///< empty: all
  // Options, off by default (docs/FIREHOSE-BANDIT.md).
  double discount = 1.0;                     ///< of past pulls a phase; 1: plain UCB1
  std::string epoch_penalty = "reciprocal";  ///< reciprocal, exponential
  std::string reward = "row";                ///< row, phase_mean
  std::string reward_unit = "token";         ///< token, byte
  std::string reward_sign = "gain";          ///< gain, change (a loss that rises counts too)
};

struct SamplesConfig {
  std::int64_t every = 100;  ///< steps; 0: never. The key is sample_every.
  std::int64_t tokens = 420;
  double temperature = 0.8;
  std::int64_t top_k = 40;  ///< 0: all
  std::vector<std::string> prompts{""};
  double threshold = 30;
  std::int64_t patience = 5;
};

struct CheckpointConfig {
  std::int64_t every = 100;
  double min_seconds = 60;
  std::int64_t keep_last = 5;
  std::int64_t keep_every = 10000;
};

struct Experiment {
  std::string name;
  ModelConfig model;
  TrainConfig train;
  DataConfig data;
  CurriculumConfig curriculum;
  SamplesConfig samples;
  CheckpointConfig checkpoint;
  std::string origin;  ///< path of the file, for messages

  /// The effective config with every default written out, as sorted compact JSON; paths as resolved.
  std::string effective_json() const;
};

/// Reads and checks a file. ConfigError lists every fault at once: JSON path, what is wrong, what is allowed
/// and, for a misspelt key, the nearest right one. Relative paths are relative to the file. No other file is
/// opened.
Experiment load_experiment(const std::string& path);
/// The same from text; relative paths are relative to `directory`.
Experiment parse_experiment(const std::string& text, const std::string& directory, const std::string& origin);

/// JSON paths of the keys in which two effective configs differ, with both values:
/// "train.lr.peak: 0.0003 -> 0.001", sorted by path. Where a tokenizer or a source lies is no difference:
/// what is in it is compared by hash.
std::vector<std::string> config_differences(const std::string& before, const std::string& after);

/// The name itself if `train.recompute` may be that; ConfigError names the right ones.
std::string parse_recompute(const std::string& name);

/// "fp32", "fp16", "bf16" or "fp8"; ConfigError for another word.
Precision parse_precision(const std::string& name);

}  // namespace andrea
