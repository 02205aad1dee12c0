#include "engine/run/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/hash/xxh64.h"
#include "engine/run/checkpoint_file.h"
#include "engine/run/checkpoint_pair.h"
#include "engine/run/evaluation.h"
#include "engine/run/resume.h"
#include "engine/run/signals.h"
#include "engine/run/trainer_impl.h"

namespace andrea {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

namespace {

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<SourceInfo> source_infos(const Loader& loader) {
  std::vector<SourceInfo> infos;
  for (const Loader::Source& s : loader.sources())
    infos.push_back({s.name, s.file.n_docs(), s.file.n_tokens(), s.file.n_bytes()});
  return infos;
}

std::unique_ptr<Policy> make_policy(const Experiment& experiment, const std::vector<SourceInfo>& infos,
                                    const TrainerHooks& hooks) {
  if (hooks.make_policy)
    if (auto policy = hooks.make_policy(experiment, infos)) return policy;
  return make_constant_policy(experiment, infos);
}

}  // namespace

// ---- before the first step

void Trainer::Impl::open_data() {
  if (codec_ != nullptr && codec_->vocab_size != engine_.shape().vocab)
    throw DataError(experiment_.data.tokenizer + ": has " + std::to_string(codec_->vocab_size) +
                    " entries, but model.vocab_size is " + std::to_string(engine_.shape().vocab) +
                    "; set it to 257 + N of the tokenizer");
  Loader& loader = engine_.loader();
  const BtokFile& first = loader.sources()[0].file;
  if (codec_ != nullptr && codec_->hash != first.tokenizer_hash())
    throw DataError(first.path() + ": was packed with another tokenizer than " + experiment_.data.tokenizer +
                    " (hashes " + hash_hex(first.tokenizer_hash()) + " and " + hash_hex(codec_->hash) +
                    "); pack it again with this one");
  for (const SourceConfig& source : experiment_.data.sources) {
    eval_files_.emplace_back();
    if (source.eval.empty() || experiment_.train.eval_every == 0) continue;
    eval_files_.back().emplace(source.eval);
    const BtokFile& file = *eval_files_.back();
    if (file.tokenizer_hash() != first.tokenizer_hash())
      throw DataError(file.path() + ": was packed with another tokenizer than " + first.path());
    file.verify(engine_.shape().vocab);
    require_a_window(file, engine_.shape().context);
  }
  phases_ = std::make_unique<Phases>(make_policy(experiment_, source_infos(loader), hooks_));
  state_.tokenizer_hash = first.tokenizer_hash();
}

bool Trainer::Impl::gate_is_wanted() const {
  const SamplesConfig& samples = experiment_.samples;
  return samples.every > 0 && samples.threshold > 0 && !samples.prompts.empty();
}

void Trainer::Impl::warn_without_gate() {
  if (codec_ == nullptr)
    say_gate_is_off("the experiment names no tokenizer, so samples are ids");
  else if (!hooks_.score)
    say_gate_is_off("nothing scores samples here (`andrea train` and --proxy do)");
}

void Trainer::Impl::say_gate_is_off(const std::string& why) {
  if (!gate_is_wanted() || std::exchange(gate_off_said_, true)) return;
  emit("warning", engine_.steps_done(),
       why + ": the coherence gate cannot stop this run; samples.threshold 0 says that none is wanted");
}

void Trainer::Impl::begin_anew() { log_ = std::make_unique<RunLog>(directory_.file(""), nullptr, true); }

void Trainer::Impl::start_from_file() {
  engine_.load(options_.from);
  state_beside(options_.from);  // refuses a .bin that its state does not know
  begin_anew();
  emit("warning", engine_.steps_done(),
       "weights and moments taken from " + options_.from + " at step " +
           std::to_string(engine_.steps_done()) +
           "; a .bin does not hold the order of the data, which starts anew");
  // Before this there is nothing that --resume could go on from.
  checkpoint(engine_.steps_done(), false, false);
}

bool Trainer::Impl::take_up() {
  const auto found = directory_.newest(static_cast<std::int32_t>(engine_.shape().n_params));
  if (!found && !options_.from.empty()) {  // it was killed before its first checkpoint
    start_from_file();
    return true;
  }
  if (!found) {
    emit("resume", 0, "no checkpoint in " + options_.out + " yet: the run begins at step 0");
    begin_anew();
    return true;
  }
  if (!options_.from.empty())
    emit("warning", found->state.step,
         "--from " + options_.from + " is not read: the run has checkpoints of its own");
  for (const std::string& reason : found->passed_over)
    emit("warning", found->state.step, "passed over " + reason);
  const std::uint64_t tokenizer_hash = state_.tokenizer_hash;
  state_ = found->state;
  state_.tokenizer_hash = tokenizer_hash;
  if (state_.stopped_by_gate && !options_.past_gate) {
    emit("gate", state_.step,
         "the coherence gate stopped this run at step " + std::to_string(state_.step) +
             ": look at its samples, then resume with --past-gate");
    return false;
  }
  if (options_.past_gate) state_.stopped_by_gate = false, state_.gate_failures = 0;

  const ResumeCheck check = check_resume(found->state, engine_, tokenizer_hash, eval_files_, options_);
  for (const std::string& warning : check.warnings) emit("warning", state_.step, warning);
  if (!state_.gemm.library.empty()) gemm_before_ = state_.gemm;

  Engine::Weights weights;
  read_checkpoint(found->bin_path, static_cast<std::int32_t>(engine_.shape().n_params), &weights.weights,
                  &weights.m, &weights.v, nullptr);
  engine_.import_weights(weights, state_.step);
  writer_.already_written(state_.step, state_.bin_hash);
  saved_step_ = state_.edge_pending ? -1 : state_.step;
  engine_.set_loss_scale(state_.loss_scale, state_.good_steps);
  engine_.loader().set_cursors(check.cursors);
  std::vector<std::string> then, now;
  for (const SourceState& s : found->state.sources) then.push_back(s.name);
  for (const Loader::Source& s : engine_.loader().sources()) now.push_back(s.name);
  phases_->restore(state_.curriculum, then, now, check.rules_changed);
  if (phases_->current().weights.size() == now.size())
    engine_.loader().set_weights(phases_->current().weights);

  if (options_.polish) archive_for_polish(directory_, state_.step);
  log_ = std::make_unique<RunLog>(directory_.file(""), &state_.history_bytes, options_.polish);
  if (state_.best_step == state_.step)
    directory_.link(state_.step, "-best");  // a kill may have come before it
  emit("resume", state_.step, "resumed at step " + std::to_string(state_.step) + " from " + found->bin_path);
  if (options_.polish) {
    state_.finished = false;
    checkpoint(state_.step, state_.edge_pending, true);  // from here on the new config is the run's
  }
  return true;
}

// ---- the loop

ExitCode Trainer::Impl::run() {
  const auto last_line = [this](ExitCode code, const std::string& reason) {
    events_.event("end", engine_.steps_done(), reason, ",\"code\":" + std::to_string(static_cast<int>(code)));
  };
  try {
    const ExitCode code = train();
    const bool all = engine_.steps_done() >= experiment_.train.steps;
    last_line(code, code == ExitCode::kFinished       ? (all ? "finished" : "stopped and saved, as asked")
                    : code == ExitCode::kStoppedEarly ? "stopped and saved"
                                                      : "stopped by the coherence gate");
    return code;
  } catch (const std::exception& error) {
    last_line(exit_code_of(error), error.what());
    throw;
  }
}

ExitCode Trainer::Impl::train() {
  end_ = experiment_.train.steps;
  if (options_.steps >= 0) end_ = std::min(end_, options_.steps);
  open_data();
  warn_without_gate();
  if (options_.resume) {
    if (!take_up()) return ExitCode::kStoppedByGate;
  } else if (!options_.from.empty()) {
    start_from_file();
  } else {
    begin_anew();
  }
  ids_.resize(static_cast<std::size_t>(engine_.rows_per_step() * (engine_.shape().context + 1)));
  start_ = last_checkpoint_ = last_flush_ = Clock::now();
  first_step_ = engine_.steps_done();
  events_.event("start", first_step_, "training begins", start_details(engine_, device_, end_));

  if (state_.edge_pending) {
    state_.edge_pending = false;
    if (!edge(first_step_)) return stop(first_step_, true);
  }
  while (true) {
    const bool halt = stop_asked() || SignalRequests::checkpoint_asked();
    if (engine_.steps_queued() == 0) {
      const std::int64_t done = engine_.steps_done();
      if (state_.stopped_by_gate) return ExitCode::kStoppedByGate;
      if (done >= end_) break;
      if (stop_asked()) return stop(done, false);
      if (SignalRequests::take_checkpoint()) checkpoint(done, false, false);
    }
    // Queue as far as the device allows, but never past an edge or a request: there everything has to stand
    // still.
    while (static_cast<int>(engine_.steps_queued()) < engine_.steps_in_flight()) {
      const std::int64_t next = engine_.steps_done() + static_cast<std::int64_t>(engine_.steps_queued());
      if (next >= end_ || (engine_.steps_queued() > 0 && (halt || is_edge(next)))) break;
      queue_next(next);
    }
    finish_step();
    if (writer_.ready()) finish_checkpoint(false);
    const std::int64_t done = engine_.steps_done();
    if (engine_.steps_queued() == 0 && is_edge(done) && !edge(done)) return stop(done, true);
  }
  const std::int64_t done = engine_.steps_done();
  finish_checkpoint(false);
  if (saved_step_ != done) checkpoint(done, false, true);
  if (experiment_.train.precision == Precision::kFp8)
    emit("fp8", done, "FP8: " + std::to_string(fp8_saturated_) + " values saturated since this start");
  emit("done", done,
       done >= experiment_.train.steps
           ? "finished: " + std::to_string(done) + " steps"
           : "stopped after step " + std::to_string(done) + " as asked, of " +
                 std::to_string(experiment_.train.steps) + "; go on with --resume");
  return ExitCode::kFinished;
}

void Trainer::Impl::queue_next(std::int64_t step) {
  Loader& loader = engine_.loader();
  if (phases_->advance(step)) {
    loader.set_weights(phases_->current().weights);
    // Its line stands before the rows of its first step, however far ahead of them it was decided.
    phase_lines_.emplace_back(
        step, "{\"phase\": " + phases_->current().log + ", \"step\": " + std::to_string(step) + "}");
    emit("phase", step, "new phase of the curriculum", phases_->current().log);
  }
  std::vector<Row> rows = loader.next(step, engine_.rows_per_step(), ids_.data());
  engine_.queue_step(std::move(rows), ids_.data());
}

void Trainer::Impl::finish_step() {
  StepReport report = engine_.finish_step();
  if (report.step == first_step_) say_gemm(report.step);
  account(report);
  if (seconds_since(last_flush_) > 0.5) {
    // A disk that is full now may have room later: what could not be written is kept and tried again.
    events_.flush();
    const std::string error = log_->flush();
    if (!error.empty() && error != last_log_error_)
      emit("warning", report.step + 1, "history not written, will be tried again: " + error);
    last_log_error_ = error;
    last_flush_ = Clock::now();
  }
  report_progress(report);
}

void Trainer::Impl::say_gemm(std::int64_t step) {
  // Now every product of a step has been made once.
  const GemmChoices now = engine_.device_info().gemm;
  if (gemm_before_) {
    const std::string warning = gemm_warning(*gemm_before_, now);
    if (!warning.empty()) emit("warning", step, warning);
    gemm_before_.reset();
  }
  Json table = Json::array();
  for (const GemmChoice& choice : now.products)
    table.push_back({{"product", choice.product}, {"algorithm", choice.algorithm}});
  emit("gemm", step, "matrix products by " + now.library,
       Json{{"library", now.library}, {"products", table}}.dump());
}

void Trainer::Impl::account(StepReport report) {
  log_->loss(report.step, report.loss, report.applied);
  events_.step(report);
  for (; !phase_lines_.empty() && phase_lines_.front().first <= report.step; phase_lines_.pop_front())
    log_->line(phase_lines_.front().second);
  for (Row& row : report.rows) {
    if (!report.applied) row.loss = std::nanf("");
    const std::string& source = engine_.loader().sources()[static_cast<std::size_t>(row.source)].name;
    log_->line(row_line(row, source));
  }
  phases_->record(report.rows);
  fp8_saturated_ += report.fp8_saturated;
  if (report.fp8_saturated > 0)
    emit("warning", report.step, std::to_string(report.fp8_saturated) + " values saturated in FP8");
  if (report.applied) {
    const double n = static_cast<double>(experiment_.train.smma);
    const double loss = report.loss;
    state_.smma = state_.has_smma ? (state_.smma * (n - 1) + loss) / n : loss;
    state_.has_smma = true;
    state_.skipped_in_a_row = 0;
    state_.last_loss = report.loss;
    return;
  }
  ++state_.skipped_total;
  emit("skip", report.step,
       report.scale_halved ? "overflow in FP16: update skipped, loss scale halved"
                           : "loss or gradient norm is not finite: update skipped");
  if (report.scale_halved) return;
  if (++state_.skipped_in_a_row >= experiment_.train.max_skipped_steps)
    throw DeviceError(
        std::to_string(state_.skipped_in_a_row) + " steps in a row up to step " +
        std::to_string(report.step) +
        " were not finite: the run has diverged. Lower train.lr.peak or raise warmup_steps, and resume "
        "from an older checkpoint with --allow-config-change");
}

void Trainer::Impl::report_progress(const StepReport& report) {
  if (!hooks_.on_progress) return;
  Progress p;
  p.step = report.step + 1;
  p.steps = experiment_.train.steps;
  p.end = end_;
  p.loss = report.loss;
  p.smma = state_.smma;
  p.grad_norm = report.grad_norm;
  p.lr = report.lr;
  const double steps = static_cast<double>(p.step - first_step_), seconds = seconds_since(start_);
  p.tokens_per_second = steps * static_cast<double>(engine_.rows_per_step() * engine_.shape().context) /
                        std::max(seconds, 1e-9);
  p.seconds_left = seconds / steps * static_cast<double>(end_ - p.step);
  p.loss_scale = report.loss_scale;
  p.skipped = state_.skipped_total;
  p.applied = report.applied;
  hooks_.on_progress(p);
}

bool Trainer::Impl::stop_asked() { return SignalRequests::stop() || (hooks_.poll && hooks_.poll()); }

Trainer::Trainer(Engine& engine, TrainerOptions options, const TextCodec* codec, TrainerHooks hooks)
    : impl_(std::make_unique<Impl>(engine, std::move(options), codec, std::move(hooks))) {}

Trainer::~Trainer() = default;

ExitCode Trainer::run() { return impl_->run(); }

}  // namespace andrea
