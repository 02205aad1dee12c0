#include "engine/bench/bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <stdexcept>

#include "engine/bench/peaks.h"
#include "engine/bench/recorded_ops.h"
#include "engine/errors.h"
#include "engine/hash/philox.h"

namespace andrea {
namespace {

constexpr std::int64_t kPeakKey = 3000, kOperationKey = 4000;  // of recorded work; the model has smaller ones
constexpr float kLossScale = 32768;

double percentile(const std::vector<double>& sorted, double part) {
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<std::size_t>(std::lround(part * last))];
}

// Steps as in training: as many in flight as the device takes, a fresh batch each.
class Steps {
 public:
  Steps(const Experiment& experiment, Model& model, Device& device, BenchReport& report)
      : experiment_(experiment), model_(model), in_flight_(device.steps_in_flight()), report_(report) {
    const PlanRequest& request = model.plan().request;
    rows_ = request.batch * request.micro_batches;
    const std::int64_t T = model.shape().context;
    ids_.resize(static_cast<std::size_t>(kBatches * rows_ * (T + 1)));
    const Philox random(7, kRows);
    for (std::size_t i = 0; i < ids_.size(); ++i)
      ids_[i] = static_cast<std::int32_t>(random.at(i)[0] % static_cast<std::uint64_t>(model.shape().vocab));
    losses_.resize(static_cast<std::size_t>(rows_));
  }

  /// `count` steps; their times in milliseconds if `times` is not null.
  void run(std::int64_t count, std::vector<double>* times, const std::function<void()>& poll) {
    auto before = std::chrono::steady_clock::now();
    const auto finish = [&] {
      const StepStatus status = model_.read_step(static_cast<int>(done_ % in_flight_), losses_.data());
      const auto now = std::chrono::steady_clock::now();
      if (times != nullptr) times->push_back(std::chrono::duration<double, std::milli>(now - before).count());
      before = now;
      double loss = 0;
      for (const float x : losses_) loss += x / static_cast<double>(losses_.size());
      if (done_++ == 0) report_.first_loss = static_cast<float>(loss);
      report_.last_loss = static_cast<float>(loss);
      report_.skipped += status.apply == 0 ? 1 : 0;
      if (poll) poll();
    };
    const std::int64_t end = queued_ + count, width = model_.shape().context + 1;
    while (queued_ < end) {
      if (queued_ - done_ == in_flight_) finish();
      model_.queue_step(static_cast<int>(queued_ % in_flight_),
                        ids_.data() + queued_ % kBatches * rows_ * width,
                        step_control(experiment_.train, queued_));
      ++queued_;
    }
    while (done_ < queued_) finish();
  }

 private:
  static constexpr std::int64_t kBatches = 8;
  const Experiment& experiment_;
  Model& model_;
  std::int64_t in_flight_;
  BenchReport& report_;
  std::int64_t rows_ = 0, queued_ = 0, done_ = 0;
  std::vector<std::int32_t> ids_;
  std::vector<float> losses_;
};

struct Operation {
  OperationTime time;
  std::vector<std::function<void()>> calls;
};

std::vector<Operation> grouped(const std::vector<RecordedCall>& calls, const DevicePeaks& peaks) {
  std::vector<Operation> operations;
  for (const RecordedCall& call : calls) {
    auto found = std::find_if(operations.begin(), operations.end(),
                              [&](const Operation& o) { return o.time.name == call.name; });
    if (found == operations.end()) {
      operations.push_back({{call.name}, {}});
      found = operations.end() - 1;
    }
    found->calls.push_back(call.again);
    ++found->time.calls;
    found->time.flops += call.flops;
    found->time.bytes += call.bytes;
    const bool wide = call.name == "attn_fwd" || call.name == "attn_bwd" || call.name.rfind("head_", 0) == 0;
    found->time.floor_ms += 1e3 * std::max(call.flops / (wide ? peaks.wide_flops : peaks.gemm_flops),
                                           call.bytes / peaks.copy_bytes);
  }
  return operations;
}

bool is_wanted(const std::string& name, const std::string& only) {
  return name.compare(0, only.size(), only) == 0;
}

void refuse_unknown(const std::vector<RecordedCall>& calls, const std::string& only) {
  std::set<std::string> names;
  for (const RecordedCall& call : calls) names.insert(call.name);
  if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return is_wanted(name, only); }))
    return;
  std::string known;
  for (const std::string& name : names) known += name + ", ";
  throw std::invalid_argument("no operation of this step begins with \"" + only + "\"; there are " + known +
                              "and " + kNoOperations + " for no table");
}

void time_operations(Backend& backend, const std::vector<RecordedCall>& calls, const BenchOptions& options,
                     const std::function<void()>& refresh, BenchReport* report) {
  const bool gpu = report->device.backend == "cuda";
  std::vector<Operation> operations = grouped(calls, report->peaks);
  std::int64_t key = kOperationKey;
  for (Operation& o : operations) {
    if (!is_wanted(o.time.name, options.only)) continue;
    if (options.poll) options.poll();
    // Sums that were added up over and over, or weights that AdamW has moved far, are not what a step works
    // on: products of infinities draw another power, and AdamW writes nothing after a step that was no good.
    if (gpu) refresh();
    // A graph of a few short kernels would measure its own launch.
    const std::int64_t rounds = gpu ? std::max<std::int64_t>(1, 48 / o.time.calls) : 1;
    o.time.ms = best_ms(*backend.device, key++, gpu ? 9 : 3,
                        [&] {
                          for (std::int64_t round = 0; round < rounds; ++round)
                            for (const auto& call : o.calls) call();
                        }) /
                static_cast<double>(rounds);
  }
  for (Operation& o : operations)
    if (o.time.ms > 0) report->operations.push_back(std::move(o.time));
}

}  // namespace

double BenchReport::tokens_per_second() const {
  return static_cast<double>(plan.request.batch * plan.request.micro_batches * context) / (median_ms * 1e-3);
}

BenchReport run_bench(const Experiment& experiment, const EngineOptions& engine,
                      const BenchOptions& options) {
  const ModelShape shape(experiment.model);
  Backend backend = make_backend(backend_request(experiment, engine));
  Device& device = *backend.device;
  const DeviceInfo before = device.info();
  const bool gpu = before.backend == "cuda";
  const std::int64_t available =
      engine.memory_bytes > 0 ? engine.memory_bytes : static_cast<std::int64_t>(before.free_bytes);
  const MemoryPlan plan =
      fit_plan(shape, plan_request(experiment, &device), backend_needs(shape, *backend.ops), available);
  BenchReport report(plan);
  report.name = experiment.name;
  report.device = before;
  report.n_params = shape.n_params;
  report.context = shape.context;
  if (engine.on_plan) engine.on_plan(describe_plan(shape, plan, available));
  report.peaks = measure_peaks(backend, kPeakKey, experiment.train.allow_tf32);
  if (options.poll) options.poll();

  auto recorded = std::make_unique<RecordedOps>(std::move(backend.ops));
  RecordedOps& ops = *recorded;
  backend.ops = std::move(recorded);
  const DeviceInfo free = device.info();
  report.used_before_bytes = static_cast<std::int64_t>(free.total_bytes - free.free_bytes);
  Model model(shape, plan, backend);
  const std::vector<float> weights = initial_parameters(shape, experiment.train.seed);
  model.set_arena(Model::Arena::kWeights, weights.data());
  if (experiment.train.precision == Precision::kFp16) model.set_loss_scale(kLossScale, 0);

  Steps steps(experiment, model, device, report);
  ops.recording = true;
  steps.run(1, nullptr, options.poll);
  ops.recording = false;
  const bool operations = options.operations && options.only != kNoOperations;
  if (operations) refuse_unknown(ops.calls, options.only);
  steps.run(gpu ? 9 : 1, nullptr, options.poll);  // recorded, clocks up, loss scale settled
  report.skipped = 0;
  report.steps = options.steps > 0 ? options.steps : (gpu ? 40 : 5);
  std::vector<double> times;
  steps.run(report.steps, &times, options.poll);
  for (const double ms : times) report.mean_ms += ms / static_cast<double>(times.size());
  std::sort(times.begin(), times.end());
  report.median_ms = percentile(times, 0.5);
  report.low_ms = percentile(times, 0.05);
  report.high_ms = percentile(times, 0.95);
  report.step_flops = shape.flops(plan.request.batch * plan.request.micro_batches * shape.context);
  report.device = device.info();  // with the products of a step in its table
  if (gpu)
    report.taken_bytes =
        static_cast<std::int64_t>(free.free_bytes) - static_cast<std::int64_t>(report.device.free_bytes);

  const auto refresh = [&] {
    model.set_arena(Model::Arena::kWeights, weights.data());
    steps.run(1, nullptr, nullptr);
  };
  const float last_loss = report.last_loss;
  const std::int64_t skipped = report.skipped;
  if (operations) time_operations(backend, ops.calls, options, refresh, &report);
  report.last_loss = last_loss;
  report.skipped = skipped;
  device.wait();
  ops.calls.clear();
  return report;
}

}  // namespace andrea
