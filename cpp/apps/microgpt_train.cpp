// microgpt_train: an experiment trained without Python. Parse, build, run, exit code.
#include <csignal>
#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>

#include "apps/command_line.h"
#include "apps/progress_lines.h"
#include "apps/proxy_hooks.h"
#include "apps/text_codec.h"
#include "engine/errors.h"
#include "engine/run/signals.h"

namespace andrea {
namespace {

int train(const CommandLine& line) {
  Experiment experiment = load_experiment(line.config);
  if (line.precision) experiment.train.precision = *line.precision;
  if (line.seed) experiment.train.seed = *line.seed;
  if (!line.policy.empty()) experiment.curriculum.policy = line.policy;

  if (line.batch_size) experiment.train.batch_size = *line.batch_size;
  if (line.micro_batches) experiment.train.micro_batches = *line.micro_batches;
  if (line.recompute) experiment.train.recompute = *line.recompute;

  if (line.bench) {
    try {
      const BenchReport report = run_bench(experiment, line.engine, line.bench_options);
      std::printf("%s", line.json ? (bench_json(report) + "\n").c_str() : describe_bench(report).c_str());
    } catch (const std::invalid_argument& error) {
      throw UsageError(std::string("--bench-only: ") + error.what());
    }
    return static_cast<int>(ExitCode::kFinished);
  }
  if (line.plan) {
    const PlanReport plan = plan_report(experiment, line.engine);
    std::printf("%s", line.json ? (plan.json + "\n").c_str() : plan.text.c_str());
    return static_cast<int>(plan.fits ? ExitCode::kFinished : ExitCode::kBadConfig);
  }

  const SignalHandlers handlers;
  std::optional<Tokenizer> tokenizer;
  std::optional<TextCodec> codec;
  if (!experiment.data.tokenizer.empty()) {
    tokenizer.emplace(Tokenizer::load(experiment.data.tokenizer));
    codec.emplace(text_codec(*tokenizer, experiment));
  }
  EngineOptions options = line.engine;
  if (!line.quiet)
    options.on_plan = [](const std::string& text) {
      std::printf("%s", text.c_str());
      std::fflush(stdout);
    };
  Engine engine(experiment, options);
  if (!line.quiet && !engine.note().empty()) std::printf("%s\n", engine.note().c_str());

  ProgressLines lines(line.quiet);
  TrainerHooks hooks;
  hooks.on_progress = [&](const Progress& progress) { lines.progress(progress); };
  hooks.on_event = [&](const Event& event) { lines.event(event); };
  if (!line.proxy.empty()) use_proxy(line.proxy, line.proxy_timeout, &hooks);
  Trainer trainer(engine, line.trainer, codec ? &*codec : nullptr, hooks);
  return static_cast<int>(trainer.run());
}

int complain(ExitCode code, const std::exception& error) {
  std::fprintf(stderr, "microgpt_train: %s\n", error.what());
  return static_cast<int>(code);
}

int run(int argc, char** argv) {
  try {
    const CommandLine line = parse_command_line(argc, argv);
    if (line.help) return std::printf("%s", usage_text().c_str()), 0;
    if (line.version) return std::printf("microgpt_train %s\n", ANDREA_VERSION), 0;
    return train(line);
  } catch (const UsageError& error) {
    return complain(ExitCode::kUsage, error);
  } catch (const std::exception& error) {
    return complain(exit_code_of(error), error);
  }
}

}  // namespace
}  // namespace andrea

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a log that was closed is no reason to stop training
  std::signal(SIGUSR1, SIG_IGN);  // "save now" may come before or after there is anything to save
  return andrea::run(argc, argv);
}
