// The trainer's state and the names of its parts: starting and the loop are in trainer.cpp, what happens
// between steps (evaluation, samples, checkpoints) in trainer_edges.cpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/run/checkpoint_writer.h"
#include "engine/run/event_log.h"
#include "engine/run/phases.h"
#include "engine/run/run_log.h"
#include "engine/run/trainer.h"

namespace andrea {

class Trainer::Impl {
 public:
  Impl(Engine& engine, TrainerOptions options, const TextCodec* codec, TrainerHooks hooks)
      : engine_(engine),
        experiment_(engine.experiment()),
        options_(std::move(options)),
        codec_(codec),
        hooks_(std::move(hooks)),
        directory_(options_.out, experiment_.name, options_.resume),
        events_(directory_.file(".events.jsonl")),
        device_(engine.device_info()),
        writer_(engine_, directory_, experiment_) {}

  ExitCode run();  // train(), and the last line of the event log

 private:
  ExitCode train();

  // Before the first step.
  void open_data();
  bool gate_is_wanted() const;
  void warn_without_gate();
  void say_gate_is_off(const std::string& why);
  bool take_up();  // false: the gate stopped this run and a person has not looked
  void begin_anew();
  void start_from_file();

  // The loop.
  void queue_next(std::int64_t step);
  void finish_step();
  bool is_edge(std::int64_t step) const;
  void account(StepReport report);
  void say_gemm(std::int64_t step);
  void report_progress(const StepReport& report);

  // Between steps; `step` is the number of finished ones.
  bool edge(std::int64_t step);  // false: a signal came in between, the rest is pending
  bool evaluate_sources(std::int64_t step, std::string* line);
  bool sample(std::int64_t step);
  void checkpoint(std::int64_t step, bool pending, bool must);
  void finish_checkpoint(bool must);
  ExitCode stop(std::int64_t step, bool pending);

  bool stop_asked();
  void emit(const char* kind, std::int64_t step, const std::string& message,
            const std::string& json = "null") {
    // Phases stand in rows.jsonl with their reasons, texts in samples.json.
    if (std::string(kind) != "phase") events_.event(kind, step, message);
    if (hooks_.on_event) hooks_.on_event({kind, step, message, json});
  }

  Engine& engine_;
  const Experiment& experiment_;
  TrainerOptions options_;
  const TextCodec* codec_;
  TrainerHooks hooks_;
  RunDirectory directory_;
  EventLog events_;
  std::unique_ptr<RunLog> log_;
  std::unique_ptr<Phases> phases_;
  std::vector<std::optional<BtokFile>> eval_files_;
  std::int64_t fp8_saturated_ = 0;          // values, since this start
  RunState state_;                          // what the next checkpoint will say
  std::optional<GemmChoices> gemm_before_;  // of the checkpoint taken up, until the first step is compared
  const DeviceInfo device_;
  CheckpointWriter writer_;  // after the log: it may still be writing when a run ends in an error
  std::int64_t end_ = 0;
  std::string last_log_error_;
  bool gate_off_said_ = false;
  std::vector<std::int32_t> ids_;
  std::deque<std::pair<std::int64_t, std::string>> phase_lines_;  // of steps that are queued
  std::chrono::steady_clock::time_point start_, last_checkpoint_, last_flush_;
  std::int64_t first_step_ = 0;
  std::int64_t saved_step_ = -1;  // the last checkpoint of this process, whole and with nothing pending
};

}  // namespace andrea
