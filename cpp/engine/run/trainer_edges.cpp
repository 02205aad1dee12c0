#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/run/evaluation.h"
#include "engine/run/signals.h"
#include "engine/run/trainer_impl.h"

namespace andrea {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

bool Trainer::Impl::is_edge(std::int64_t step) const {
  const auto due = [step](std::int64_t every) { return every > 0 && step % every == 0; };
  return step == end_ || due(experiment_.train.eval_every) || due(experiment_.samples.every) ||
         due(experiment_.checkpoint.every);
}

bool Trainer::Impl::edge(std::int64_t step) {
  const auto due = [step](std::int64_t every) { return every > 0 && step % every == 0; };
  // The lines are written when all is done: a stop in between leaves no half, and a resume does it all again.
  std::string eval_line;
  if (due(experiment_.train.eval_every) && !evaluate_sources(step, &eval_line)) return false;
  if (due(experiment_.samples.every) && !sample(step)) return false;
  if (!eval_line.empty()) log_->line(eval_line);
  const bool last = step == end_ || state_.stopped_by_gate;
  const bool asked = SignalRequests::take_checkpoint();
  if (last || asked ||
      (due(experiment_.checkpoint.every) &&
       std::chrono::duration<double>(Clock::now() - last_checkpoint_).count() >=
           experiment_.checkpoint.min_seconds))
    checkpoint(step, false, last);
  return true;
}

bool Trainer::Impl::evaluate_sources(std::int64_t step, std::string* line) {
  Json results = Json::object();
  double sum = 0;
  const std::int64_t windows = experiment_.train.eval_batches * engine_.plan().request.batch;
  for (std::size_t k = 0; k < eval_files_.size(); ++k) {
    if (!eval_files_[k]) continue;
    bool stopped = false;
    const EvalResult r =
        evaluate(engine_, *eval_files_[k], windows, [&] { return !(stopped = stop_asked()); });
    if (stopped) return false;
    results[experiment_.data.sources[k].name] = {
        {"loss", r.loss}, {"bits_per_byte", r.bits_per_byte}, {"windows", r.windows}};
    sum += r.bits_per_byte;
  }
  if (results.empty()) return true;
  const double mean = sum / static_cast<double>(results.size());
  *line = Json{{"eval", results}, {"step", step}, {"mean_bits_per_byte", mean}}.dump();
  emit("eval", step,
       "held-out text: " + shortest(static_cast<float>(mean)) + " bits per byte (mean over sources)",
       results.dump());
  return true;
}

bool Trainer::Impl::sample(std::int64_t step) {
  const SamplesConfig& config = experiment_.samples;
  std::vector<std::string> lines;
  std::vector<Event> events;
  double score_sum = 0;
  for (std::size_t i = 0; i < config.prompts.size(); ++i) {
    Sampling sampling;
    sampling.temperature = config.temperature;
    sampling.top_k = config.top_k;
    sampling.seed = experiment_.train.seed;
    sampling.nonce = static_cast<std::uint64_t>(step) * config.prompts.size() + i;
    std::vector<std::int32_t> prompt;
    if (codec_ != nullptr) prompt = codec_->encode(config.prompts[i]);
    bool stopped = false;
    std::vector<std::int32_t> ids = engine_.generate(prompt, config.tokens, sampling,
                                                     [&](std::int32_t) { return !(stopped = stop_asked()); });
    if (stopped) return false;
    std::string line = "{\"step\": " + std::to_string(step) + ", \"loss\": " + shortest(state_.last_loss) +
                       ", \"prompt\": " + json_quote(config.prompts[i]);
    std::string shown = std::to_string(ids.size()) + " ids";
    std::string verdict = "null";
    if (codec_ != nullptr) {
      ids.insert(ids.begin(), prompt.begin(), prompt.end());
      shown = codec_->decode(ids);
      line += ", \"text\": " + json_quote(shown);
      if (hooks_.score) {
        const Coherence c = hooks_.score(shown);
        score_sum += c.score;
        verdict = c.json;
        if (!c.unscored.empty()) say_gate_is_off(c.unscored);
      }
    } else {
      line += ", \"ids\": " + Json(ids).dump();
    }
    lines.push_back(line + ", \"coherence\": " + verdict + "}");
    events.push_back({"sample", step, shown, verdict});
  }
  for (const std::string& line : lines) log_->sample(line);
  events_.event("sample", step, std::to_string(lines.size()) + (lines.size() == 1 ? " sample" : " samples"));
  for (const Event& event : events)
    if (hooks_.on_event) hooks_.on_event(event);

  if (hooks_.score && codec_ != nullptr && !config.prompts.empty()) {
    const double score = score_sum / static_cast<double>(config.prompts.size());
    if (std::isnan(score)) return true;  // no verdict (the proxy was away) counts neither for nor against
    state_.gate_failures = score < config.threshold ? state_.gate_failures + 1 : 0;
    if (state_.gate_failures >= config.patience) {
      state_.stopped_by_gate = true;
      emit("gate", step,
           "samples scored below " + shortest(config.threshold) + " " + std::to_string(state_.gate_failures) +
               " times in a row (the last " + shortest(score) +
               "): stopped; look at the samples, then resume with " + "--past-gate");
    }
  }
  return true;
}

void Trainer::Impl::checkpoint(std::int64_t step, bool pending, bool must) {
  finish_checkpoint(false);  // the one before, if it is still being written
  RunState next = state_;
  next.step = step;
  next.edge_pending = pending;
  next.finished = step >= experiment_.train.steps && !pending;
  next.config = experiment_.effective_json();
  next.curriculum = phases_->state();
  next.not_reproducible_from =
      state_.not_reproducible_from >= 0 ? state_.not_reproducible_from : phases_->not_reproducible_from();
  next.loss_scale = engine_.loss_scale();
  next.good_steps = engine_.good_steps();
  next.sources.clear();
  const Loader& loader = engine_.loader();
  for (std::size_t k = 0; k < loader.sources().size(); ++k) {
    next.sources.push_back(
        {loader.sources()[k].name, loader.cursors()[k], loader.sources()[k].file.content_hash()});
    if (eval_files_[k]) next.sources.back().eval_hash = eval_files_[k]->content_hash();
  }
  next.version = ANDREA_VERSION;
  next.device = device_.name;
  next.arithmetic = device_.arithmetic;
  next.recompute = recompute_key(engine_.plan().request.recompute);
  next.gemm = engine_.device_info().gemm;
  next.precision = precision_name(experiment_.train.precision);
  next.threads = device_.threads;
  next.written_unix =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  const bool best = state_.has_smma && (state_.best_step < 0 || state_.smma < state_.best_smma);
  if (best) next.best_step = step, next.best_smma = state_.smma;
  try {
    log_->write();
  } catch (const IoError& error) {
    if (must) throw;
    emit("warning", step,
         std::string("checkpoint not written, training goes on and will try again: ") + error.what());
    return;
  }
  next.history_bytes = log_->bytes();
  writer_.begin(next, best, *log_);
  if (must || !engine_.snapshot_is_a_copy()) finish_checkpoint(must);
}

void Trainer::Impl::finish_checkpoint(bool must) {
  if (!writer_.in_progress()) return;
  const CheckpointWriter::Outcome outcome = writer_.finish();
  const std::int64_t step = outcome.state.step;
  if (!outcome.failure.empty()) {
    if (must) throw IoError("the last checkpoint could not be written: " + outcome.failure);
    emit("warning", engine_.steps_done(),
         "checkpoint not written, training goes on and will try again: " + outcome.failure);
    return;
  }
  // What training has counted since then stays; what the checkpoint decided is taken over.
  state_.best_step = outcome.state.best_step;
  state_.best_smma = outcome.state.best_smma;
  state_.not_reproducible_from = outcome.state.not_reproducible_from;
  saved_step_ = outcome.state.edge_pending ? -1 : step;
  last_checkpoint_ = Clock::now();
  if (!outcome.warning.empty()) emit("warning", step, outcome.warning);
  emit("checkpoint", step, "saved " + outcome.path);
}

ExitCode Trainer::Impl::stop(std::int64_t step, bool pending) {
  const int signal = SignalRequests::stop_signal();
  emit("signal", step,
       signal != 0 ? "signal " + std::to_string(signal) + " received: saving and leaving"
                   : "asked to stop: saving and leaving");
  finish_checkpoint(false);
  if (pending || saved_step_ != step) checkpoint(step, pending, true);
  emit("done", step, "stopped at step " + std::to_string(step) + "; go on with --resume");
  return ExitCode::kStoppedEarly;
}

}  // namespace andrea
