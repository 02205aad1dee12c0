// A run: the loop around the engine with its checkpoints, history, evaluation, samples, signals and policy.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/errors.h"
#include "engine/model/engine.h"
#include "engine/run/history.h"
#include "engine/run/policy.h"
#include "engine/run/run_directory.h"

namespace andrea {

/// Text <-> ids, given by whoever knows a tokenizer; the engine knows none.
struct TextCodec {
  std::function<std::vector<std::int32_t>(const std::string&)> encode;
  std::function<std::string(const std::vector<std::int32_t>&)> decode;
  std::uint64_t hash = 0;
  std::int64_t vocab_size = 0;
};

struct TrainerOptions {
  std::string out;  ///< run directory
  bool resume = false;
  std::int64_t steps = -1;  ///< end the process after this step of the run; -1: train.steps
  std::string from;         ///< start from this .bin, data order anew
  bool allow_data_change = false;
  bool allow_config_change = false;
  bool polish = false;     ///< a new config is expected; samples and state are archived
  bool past_gate = false;  ///< go on after the coherence gate stopped the run
};

/// What a display may show, after each step.
struct Progress {
  std::int64_t step = 0;   ///< finished steps
  std::int64_t steps = 0;  ///< of the whole run
  std::int64_t end = 0;    ///< where this process ends
  float loss = 0;
  double smma = 0;
  float grad_norm = 0;
  double lr = 0;
  double tokens_per_second = 0;  ///< of this process, smoothed
  double seconds_left = 0;       ///< from this process's own rate; < 0: unknown yet
  float loss_scale = 1;
  std::int64_t skipped = 0;
  bool applied = true;
};

/// Something worth a line in the log and on the time line.
struct Event {
  std::string kind;  ///< plan, resume, checkpoint, warning, eval, sample, skip, signal, phase, gate, done
  std::int64_t step = 0;
  std::string message;  ///< one line for people
  std::string json;     ///< details
};

/// The verdict of a coherence scorer on one sample.
struct Coherence {
  double score = 0;           ///< 0..100
  std::string json = "null";  ///< its parts
  std::string unscored{};  ///< why there is no score (`score` is NaN) and will be none; empty: there is one
};

struct TrainerHooks {
  std::function<void(const Progress&)> on_progress;
  std::function<void(const Event&)> on_event;
  /// Called often; a true result means: stop as SIGTERM would. May throw (Python's KeyboardInterrupt).
  std::function<bool()> poll;
  /// Empty: the constant policies only.
  std::function<std::unique_ptr<Policy>(const Experiment&, const std::vector<SourceInfo>&)> make_policy;
  /// Empty: samples carry no score and the gate never closes.
  std::function<Coherence(const std::string& text)> score;
};

class Trainer {
 public:
  /// `codec` may be null: samples are then ids, and the tokenizer hash is not checked.
  Trainer(Engine& engine, TrainerOptions options, const TextCodec* codec, TrainerHooks hooks);
  ~Trainer();

  /// Trains to the end, to a signal or to the gate. Errors are exceptions.
  ExitCode run();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace andrea
