// `--bench`: how long a training step of an experiment takes on this device, where the time goes, and how far
// that is from what the device can do. Opens no data: ids are random, weights those of a new run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/engine.h"

namespace andrea {

constexpr const char* kNoOperations = "none";

struct BenchOptions {
  std::int64_t steps = 0;      ///< timed ones; 0: 40 on a GPU, 5 on the CPU
  bool operations = true;      ///< the table of operations too
  std::string only;            ///< operations whose name begins so; empty: all, kNoOperations: none
  std::function<void()> poll;  ///< called between measurements; may throw to end the benchmark
};

/// Speeds that this device reached in this run, and what its maker states.
struct DevicePeaks {
  double gemm_flops = 0;       ///< a second: the best of large square products in this precision
  double wide_flops = 0;       ///< the same of those that FP8 leaves in bfloat16; else gemm_flops
  std::int64_t gemm_size = 0;  ///< their m = n = k
  double copy_bytes = 0;       ///< a second: out = a + b on large arrays, 2 reads and 1 write
  std::optional<double>
      nominal_flops;  ///< a second, dense, float32 sums; none if the device is not in the table
};

/// All calls of one operation in a step.
struct OperationTime {
  std::string name;
  std::int64_t calls = 0;  ///< a step
  double ms = 0;           ///< of all of them, one after the other
  double flops = 0;
  double bytes = 0;
  double floor_ms = 0;  ///< the sum over calls of max(flops / its products' peak, bytes / copy peak)
};

struct BenchReport {
  explicit BenchReport(const MemoryPlan& of) : plan(of) {}

  std::string name;  ///< of the experiment
  DeviceInfo device;
  MemoryPlan plan;
  std::int64_t n_params = 0;
  std::int64_t context = 0;  ///< T
  std::int64_t steps = 0;
  double mean_ms = 0, median_ms = 0, low_ms = 0,
         high_ms = 0;     ///< low, high: 5 % of the steps lie beyond each
  double step_flops = 0;  ///< ModelShape::flops of the tokens of a step
  float first_loss = 0, last_loss = 0;
  std::int64_t skipped = 0;
  std::int64_t used_before_bytes = 0;  ///< of the device before the plan: context, libraries, other processes
  std::int64_t taken_bytes = 0;        ///< what the device has less of since; 0 where it is not counted (CPU)
  DevicePeaks peaks;
  std::vector<OperationTime> operations;  ///< in the order of their first call

  double tokens_per_second() const;
  double flops_per_second() const { return step_flops / (median_ms * 1e-3); }
};

/// Dense peak by the maker's data sheet, in FLOP a second; none for a device or precision not in the table.
std::optional<double> nominal_peak(const std::string& device, Precision precision, bool allow_tf32);

/// DeviceError, ConfigError, OutOfMemory as for an Engine; std::invalid_argument if `only` names no
/// operation.
BenchReport run_bench(const Experiment& experiment, const EngineOptions& engine, const BenchOptions& options);

/// For people, and as JSON.
std::string describe_bench(const BenchReport& report);
std::string bench_json(const BenchReport& report);

}  // namespace andrea
