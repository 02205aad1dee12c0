// A benchmark's report for people and for programs.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "engine/bench/bench.h"

namespace andrea {
namespace {

template <class... Args>
std::string format(const char* pattern, Args... args) {
  char line[240];
  std::snprintf(line, sizeof line, pattern, args...);
  return line;
}

}  // namespace

std::string describe_bench(const BenchReport& r) {
  const PlanRequest& request = r.plan.request;
  const auto integer = [](std::int64_t n) { return static_cast<long long>(n); };
  std::string text =
      format("%s: %lld parameters, %s, %lld x %lld tokens x %lld micro-batches, computed again: %s\n",
             r.name.c_str(), integer(r.n_params), precision_name(request.precision), integer(request.batch),
             integer(r.context), integer(request.micro_batches), recompute_name(request.recompute)) +
      "device: " + r.device.name + " (" + r.device.arithmetic + ")\n";
  text +=
      format("step: median %.3f ms (5 to 95 %%: %.3f to %.3f), mean %.3f ms of %lld steps; %.0f tokens/s\n",
             r.median_ms, r.low_ms, r.high_ms, r.mean_ms, integer(r.steps), r.tokens_per_second());
  text += format("      loss %.4f -> %.4f, %lld steps skipped\n", static_cast<double>(r.first_loss),
                 static_cast<double>(r.last_loss), integer(r.skipped));
  const double rate = r.flops_per_second();
  text += format(
      "rate: %.3f TFLOP/s (6 per parameter and token, position table left out, 6 L d T per token for "
      "attention)\n",
      rate / 1e12);
  text += format("      %.1f %% of products of %lld^3 measured now (%.3f TFLOP/s)",
                 100 * rate / r.peaks.gemm_flops, integer(r.peaks.gemm_size), r.peaks.gemm_flops / 1e12);
  text += r.peaks.nominal_flops ? format(", %.1f %% of the maker's %.1f TFLOP/s\n",
                                         100 * rate / *r.peaks.nominal_flops, *r.peaks.nominal_flops / 1e12)
                                : std::string(", maker's peak: n/a\n");
  text += "memory: plan " + format_bytes(r.plan.device_bytes) + ", host " + format_bytes(r.plan.host_bytes);
  if (r.taken_bytes > 0)
    text += "; the device counts " + format_bytes(r.taken_bytes) + ", and " +
            format_bytes(r.used_before_bytes) + " before it (context, libraries, other processes)";
  text += '\n';
  text += "products: " + r.device.gemm.library + "\n";
  for (const GemmChoice& choice : r.device.gemm.products)
    text += "  " + choice.product + ": " + choice.algorithm + "\n";
  if (r.operations.empty()) return text;

  text += format("\n%-18s %6s %10s %6s %9s %9s %9s %7s\n", "operation", "calls", "ms a step", "share",
                 "TFLOP/s", "GB/s", "floor ms", "% floor");
  double sum = 0, floors = 0;
  for (const OperationTime& o : r.operations) sum += o.ms, floors += o.floor_ms;
  for (const OperationTime& o : r.operations)
    text += format("%-18s %6lld %10.4f %5.1f%% %9.3f %9.1f %9.4f %6.0f%%\n", o.name.c_str(), integer(o.calls),
                   o.ms, 100 * o.ms / sum, o.flops / o.ms / 1e9, o.bytes / o.ms / 1e6, o.floor_ms,
                   100 * o.floor_ms / o.ms);
  text += format("%-18s %6s %10.4f %6s %9s %9s %9.4f %6.0f%%\n", "sum", "", sum, "", "", "", floors,
                 100 * floors / sum);
  text += format(
      "floor: the larger of FLOPs at the rate of large products and bytes at %.3f TB/s (measured now)\n",
      r.peaks.copy_bytes / 1e12);
  if (request.precision == Precision::kFp8)
    text += format("       attention and head, in bfloat16: at %.3f TFLOP/s\n", r.peaks.wide_flops / 1e12);
  return text;
}

std::string bench_json(const BenchReport& r) {
  using Json = nlohmann::json;
  const PlanRequest& request = r.plan.request;
  Json json;
  json["name"] = r.name;
  json["version"] = ANDREA_VERSION;
  json["device"] = {{"backend", r.device.backend},           {"name", r.device.name},
                    {"arithmetic", r.device.arithmetic},     {"details", r.device.details},
                    {"gemm_library", r.device.gemm.library}, {"threads", r.device.threads}};
  json["gemm_table"] = Json::array();
  for (const GemmChoice& choice : r.device.gemm.products)
    json["gemm_table"].push_back({{"product", choice.product}, {"algorithm", choice.algorithm}});
  json["n_params"] = r.n_params;
  json["precision"] = precision_name(request.precision);
  json["batch_size"] = request.batch;
  json["micro_batches"] = request.micro_batches;
  json["context"] = r.context;
  json["recompute"] = recompute_key(request.recompute);
  json["step"] = {{"steps", r.steps},           {"median_ms", r.median_ms}, {"mean_ms", r.mean_ms},
                  {"low_ms", r.low_ms},         {"high_ms", r.high_ms},     {"flops", r.step_flops},
                  {"first_loss", r.first_loss}, {"last_loss", r.last_loss}, {"skipped", r.skipped}};
  json["tokens_per_second"] = r.tokens_per_second();
  json["flops_per_second"] = r.flops_per_second();
  json["peaks"] = {{"gemm_flops_per_second", r.peaks.gemm_flops},
                   {"wide_gemm_flops_per_second", r.peaks.wide_flops},
                   {"gemm_size", r.peaks.gemm_size},
                   {"copy_bytes_per_second", r.peaks.copy_bytes},
                   {"nominal_flops_per_second", nullptr}};
  json["share_of_gemm_peak"] = r.flops_per_second() / r.peaks.gemm_flops;
  json["share_of_nominal_peak"] = nullptr;
  if (r.peaks.nominal_flops) {
    json["peaks"]["nominal_flops_per_second"] = *r.peaks.nominal_flops;
    json["share_of_nominal_peak"] = r.flops_per_second() / *r.peaks.nominal_flops;
  }
  json["memory"] = {{"plan_bytes", r.plan.device_bytes},
                    {"host_bytes", r.plan.host_bytes},
                    {"taken_bytes", r.taken_bytes},
                    {"used_before_bytes", r.used_before_bytes}};
  json["operations"] = Json::array();
  for (const OperationTime& o : r.operations)
    json["operations"].push_back({{"name", o.name},
                                  {"calls", o.calls},
                                  {"ms", o.ms},
                                  {"flops", o.flops},
                                  {"bytes", o.bytes},
                                  {"floor_ms", o.floor_ms},
                                  {"share_of_roofline", o.floor_ms / o.ms}});
  return json.dump();
}

}  // namespace andrea
