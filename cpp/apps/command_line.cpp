#include "apps/command_line.h"

#include <getopt.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "engine/run/proxy_socket.h"

namespace andrea {
namespace {

enum Flag : int {
  kConfig = 256,
  kOut,
  kResume,
  kSteps,
  kDevice,
  kPrecision,
  kThreads,
  kSeed,
  kPlan,
  kBench,
  kBenchSteps,
  kBenchOnly,
  kBatchSize,
  kMicroBatches,
  kRecompute,
  kJson,
  kMemory,
  kFrom,
  kAllowDataChange,
  kAllowConfigChange,
  kPastGate,
  kPolish,
  kProxy,
  kProxyTimeout,
  kPolicy,
  kQuiet,
  kVersion,
  kHelp
};

struct FlagSpec {
  Flag flag;
  const char* name;
  const char* value;  // null: the flag takes none
  const char* help;
};

constexpr FlagSpec kFlags[] = {
    {kConfig, "config", "FILE", "the experiment (required)"},
    {kOut, "out", "DIR", "the run directory (required, but for --plan and --bench)"},
    {kResume, "resume", nullptr, "go on from the newest checkpoint that verifies"},
    {kSteps, "steps", "N", "end this process after step N of the run"},
    {kDevice, "device", "D", "cpu, cuda or auto [auto]"},
    {kPrecision, "precision", "P", "fp32, fp16, bf16 or fp8, instead of the experiment's"},
    {kThreads, "threads", "K", "CPU threads; they never change the results [all cores]"},
    {kSeed, "seed", "S", "instead of the experiment's"},
    {kPlan, "plan", nullptr, "print the memory plan and stop"},
    {kBench, "bench", nullptr, "measure a training step and its operations, and stop; opens no data"},
    {kBenchSteps, "bench-steps", "N", "timed steps [40 on a GPU, 5 on the CPU]"},
    {kBenchOnly, "bench-only", "NAME", "operations whose name begins so, such as attn_; or none [all]"},
    {kJson, "json", nullptr, "the report of --plan or --bench for programs"},
    {kBatchSize, "batch-size", "N", "of --plan and --bench, instead of the experiment's"},
    {kMicroBatches, "micro-batches", "N", "the same"},
    {kRecompute, "recompute", "LEVEL", "of --plan and --bench: nothing, gelu, cheap, layer or auto"},
    {kMemory, "memory", "SIZE", "budget of the plan, such as 24GB [what is free]"},
    {kFrom, "from", "FILE", "start from this .bin; the data order starts anew"},
    {kAllowDataChange, "allow-data-change", nullptr, "resume although tokenizer or data differ"},
    {kAllowConfigChange, "allow-config-change", nullptr,
     "resume although other keys of the experiment differ"},
    {kPastGate, "past-gate", nullptr, "resume a run that the coherence gate stopped"},
    {kPolish, "polish", nullptr, "resume under a new experiment; samples and state are archived"},
    {kProxy, "proxy", "ADDRESS", "let `andrea proxy` choose the data: unix:PATH or tcp:127.0.0.1:PORT"},
    {kProxyTimeout, "proxy-timeout", "S", "seconds a phase edge may wait for it [60]"},
    {kPolicy, "policy", "P", "uniform, proportional or fixed, instead of the experiment's"},
    {kQuiet, "quiet", nullptr, "warnings and errors only"},
    {kVersion, "version", nullptr, "print the version and stop"},
    {kHelp, "help", nullptr, "print this and stop"},
};

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string nearest_flag(const std::string& given) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, given.size() / 3) + 1;  // farther is no help
  for (const FlagSpec& spec : kFlags) {
    const std::size_t distance = edit_distance(given, spec.name);
    if (distance < best_distance && distance < given.size()) best = spec.name, best_distance = distance;
  }
  return best;
}

[[noreturn]] void refuse_unknown(const std::string& argument) {
  const std::string name =
      argument.substr(0, argument.find('=')).substr(argument.rfind("--", 0) == 0 ? 2 : 1);
  const std::string nearest = nearest_flag(name);
  throw UsageError("unknown flag " + argument + (nearest.empty() ? "" : "; did you mean --" + nearest + "?") +
                   " (--help lists all)");
}

std::int64_t integer(const char* flag, const char* text, std::int64_t low, std::int64_t high) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0 || value < low || value > high)
    throw UsageError(std::string("--") + flag + " " + text + ": a whole number from " + std::to_string(low) +
                     " to " + std::to_string(high) + " is needed");
  return value;
}

// A value that `check` refuses is a mistake of the command line, not of the experiment.
template <class Check>
auto value_of(const char* flag, const Check& check) {
  try {
    return check();
  } catch (const Error& error) {
    throw UsageError(std::string("--") + flag + ": " + error.what());
  }
}

std::string device_name(const std::string& name) {
  if (name != "cpu" && name != "cuda" && name != "auto")
    throw UsageError("--device " + name + ": cpu, cuda or auto is needed");
  return name;
}

std::string constant_policy(const std::string& name) {
  if (name != "uniform" && name != "proportional" && name != "fixed")
    throw UsageError("--policy " + name + ": uniform, proportional or fixed is needed");
  return name;
}

void set(CommandLine& line, int flag, const char* value) {
  switch (flag) {
    case kConfig:
      line.config = value;
      break;
    case kOut:
      line.trainer.out = value;
      break;
    case kResume:
      line.trainer.resume = true;
      break;
    case kSteps:
      line.trainer.steps = integer("steps", value, 1, INT_MAX);
      break;
    case kDevice:
      line.engine.device = device_name(value);
      break;
    case kPrecision:
      line.precision = value_of("precision", [&] { return parse_precision(value); });
      break;
    case kThreads:
      line.engine.threads = static_cast<int>(integer("threads", value, 1, 4096));
      break;
    case kSeed:
      line.seed = static_cast<std::uint32_t>(integer("seed", value, 0, UINT32_MAX));
      break;
    case kPlan:
      line.plan = true;
      break;
    case kBench:
      line.bench = true;
      break;
    case kBenchSteps:
      line.bench_options.steps = integer("bench-steps", value, 1, 1'000'000);
      break;
    case kBenchOnly:
      line.bench_options.only = value;
      break;
    case kJson:
      line.json = true;
      break;
    case kBatchSize:
      line.batch_size = integer("batch-size", value, 1, 1 << 20);
      break;
    case kMicroBatches:
      line.micro_batches = integer("micro-batches", value, 1, 1 << 20);
      break;
    case kRecompute:
      line.recompute = value_of("recompute", [&] { return parse_recompute(value); });
      break;
    case kMemory:
      line.engine.memory_bytes = value_of("memory", [&] { return parse_bytes(value); });
      break;
    case kFrom:
      line.trainer.from = value;
      break;
    case kAllowDataChange:
      line.trainer.allow_data_change = true;
      break;
    case kAllowConfigChange:
      line.trainer.allow_config_change = true;
      break;
    case kPastGate:
      line.trainer.past_gate = true;
      break;
    case kPolish:
      line.trainer.polish = true;
      break;
    case kProxy:
      value_of("proxy", [&] { return parse_proxy_address(value); });
      line.proxy = value;
      break;
    case kProxyTimeout:
      line.proxy_timeout = static_cast<double>(integer("proxy-timeout", value, 1, 86400));
      break;
    case kPolicy:
      line.policy = constant_policy(value);
      break;
    case kQuiet:
      line.quiet = true;
      break;
    case kVersion:
      line.version = true;
      break;
    default:
      line.help = true;
  }
}

}  // namespace

CommandLine parse_command_line(int argc, char** argv) {
  std::vector<option> options;
  for (const FlagSpec& spec : kFlags)
    options.push_back({spec.name, spec.value ? required_argument : no_argument, nullptr, spec.flag});
  options.push_back({nullptr, 0, nullptr, 0});

  CommandLine line;
  opterr = 0;
  optind = 1;
  while (true) {
    const int at = optind;
    const int flag = getopt_long(argc, argv, ":h", options.data(), nullptr);
    if (flag == -1) break;
    if (flag == ':') throw UsageError(std::string(argv[optind - 1]) + " needs a value (--help lists all)");
    if (flag == '?') refuse_unknown(argv[at]);
    set(line, flag == 'h' ? static_cast<int>(kHelp) : flag, optarg);
  }
  if (line.help || line.version) return line;
  if (optind < argc)
    throw UsageError(std::string("unexpected argument ") + argv[optind] +
                     "; the experiment is --config FILE");
  if (!line.proxy.empty() && !line.policy.empty())
    throw UsageError("--proxy and --policy exclude each other: the proxy has the policy");
  if (line.config.empty()) throw UsageError("--config FILE is needed (--help lists all)");
  const bool measures = line.plan || line.bench;
  if (line.plan && line.bench) throw UsageError("--plan and --bench exclude each other");
  if (!measures && (line.json || line.batch_size || line.micro_batches || line.recompute))
    throw UsageError(
        "--json, --batch-size, --micro-batches and --recompute belong to --plan and --bench; "
        "for a run, write them into the experiment");
  if (line.trainer.out.empty() && !measures)
    throw UsageError("--out DIR is needed: where checkpoints and history go");
  return line;
}

std::string usage_text() {
  std::string text = "microgpt_train " ANDREA_VERSION
                     ": trains the model of one experiment file.\n\n"
                     "  microgpt_train --config FILE --out DIR [--resume] [flags]\n"
                     "  microgpt_train --config FILE --plan [--memory 24GB]\n"
                     "  microgpt_train --config FILE --bench [--batch-size 8]\n\n";
  for (const FlagSpec& spec : kFlags) {
    std::string flag = std::string("  --") + spec.name + (spec.value ? std::string(" ") + spec.value : "");
    flag.resize(std::max<std::size_t>(flag.size() + 1, 26), ' ');
    text += flag + spec.help + "\n";
  }
  text +=
      "\nWithout --proxy the policies are uniform, proportional and fixed, and samples have no score, so "
      "the\n"
      "coherence gate stops no run: that takes `andrea train` or `andrea proxy`.\n"
      "\nSIGTERM, SIGINT: finish the step, save, exit 75.  SIGUSR1: save and go on.\n"
      "Exit: 0 finished, 75 stopped early and saved, 79 stopped by the coherence gate, 64 usage, 65 bad "
      "data,\n"
      "74 input/output, 78 bad experiment, 70 internal.\n";
  return text;
}

}  // namespace andrea
