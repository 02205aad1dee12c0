// The command line of microgpt_train.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "engine/bench/bench.h"
#include "engine/model/engine.h"
#include "engine/run/trainer.h"

namespace andrea {

/// A flag or value that cannot be (exit code 64).
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct CommandLine {
  std::string config;
  TrainerOptions trainer;
  EngineOptions engine;
  std::optional<Precision> precision;
  std::optional<std::uint32_t> seed;
  std::string proxy;  ///< address of `andrea proxy`; empty: none
  double proxy_timeout = 60;
  std::string policy;  ///< instead of the experiment's; empty: that one
  bool plan = false;
  bool bench = false;
  BenchOptions bench_options;
  std::optional<std::int64_t> batch_size, micro_batches;  ///< of --plan and --bench
  std::optional<std::string> recompute;
  bool json = false;
  bool quiet = false;
  bool help = false;
  bool version = false;
};

/// UsageError names an unknown flag with the nearest right one, a missing value, or a value that is no
/// number.
CommandLine parse_command_line(int argc, char** argv);

/// What --help prints.
std::string usage_text();

}  // namespace andrea
