// Plans and benchmarks of an experiment for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bindings/engine_arguments.h"
#include "bindings/topics.h"
#include "engine/bench/bench.h"
#include "engine/errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace andrea {
namespace {

// What `plan` and `bench` change of an experiment.
struct Changes {
  std::optional<std::string> precision;
  std::optional<std::int64_t> batch_size, micro_batches;
  std::optional<std::string> recompute;
};

void apply(const Changes& changes, Experiment* experiment) {
  const auto positive = [](const char* name, std::int64_t value) {
    if (value < 1 || value > (1 << 20))
      throw ConfigError(std::string(name) + ": must be 1 to 1048576, is " + std::to_string(value));
    return value;
  };
  TrainConfig& train = experiment->train;
  if (changes.precision) train.precision = parse_precision(*changes.precision);
  if (changes.batch_size) train.batch_size = positive("batch_size", *changes.batch_size);
  if (changes.micro_batches) train.micro_batches = positive("micro_batches", *changes.micro_batches);
  if (changes.recompute) train.recompute = parse_recompute(*changes.recompute);
}

}  // namespace

void init_measure(nb::module_& m) {
  nb::class_<PlanReport>(m, "PlanReport", "What a run would need.")
      .def_ro("text", &PlanReport::text, "for people")
      .def_prop_ro(
          "data", [](const PlanReport& plan) { return nb::cast<nb::dict>(parse_json(plan.json)); },
          nb::for_getter(nb::sig("def data(self) -> dict[str, typing.Any]")),
          "bytes by group and by buffer, the largest batch that fits")
      .def_ro("fits", &PlanReport::fits);
  m.def("parse_bytes", &parse_bytes, "text"_a,
        "The bytes of a size such as \"24GB\" or \"1.5GiB\"; ConfigError if it is none.");
  m.def(
      "plan_report",
      [](nb::handle experiment, const std::string& device, std::optional<int> threads, nb::handle memory,
         const std::optional<std::string>& precision, std::optional<std::int64_t> batch_size,
         std::optional<std::int64_t> micro_batches, const std::optional<std::string>& recompute) {
        Experiment read = read_experiment(experiment, {}, {});
        apply({precision, batch_size, micro_batches, recompute}, &read);
        const EngineOptions options = engine_options(device, threads, memory);
        const nb::gil_scoped_release unlocked;
        return plan_report(read, options);
      },
      "experiment"_a, "device"_a = "auto", "threads"_a = nb::none(), "memory"_a = nb::none(),
      "precision"_a = nb::none(), "batch_size"_a = nb::none(), "micro_batches"_a = nb::none(),
      "recompute"_a = nb::none(),
      nb::sig("def plan_report(experiment: Experiment | str | os.PathLike[str], device: str = 'auto', "
              "threads: int | None = None, memory: str | int | None = None, "
              "precision: str | None = None, batch_size: int | None = None, "
              "micro_batches: int | None = None, recompute: str | None = None) -> PlanReport"),
      "The memory plan for `memory` (bytes or \"24GB\"; default: what is free), without allocating it and "
      "without opening data.");
  nb::class_<BenchReport>(m, "BenchReport", "What a benchmark of an experiment measured.")
      .def_prop_ro("text", &describe_bench, "for people")
      .def_prop_ro(
          "data",
          [](const BenchReport& report) { return nb::cast<nb::dict>(parse_json(bench_json(report))); },
          nb::for_getter(nb::sig("def data(self) -> dict[str, typing.Any]")), "the same for programs");
  m.def(
      "run_bench",
      [](nb::handle experiment, const std::string& device, std::optional<int> threads, nb::handle memory,
         const std::optional<std::string>& precision, std::optional<std::int64_t> batch_size,
         std::optional<std::int64_t> micro_batches, const std::optional<std::string>& recompute,
         std::int64_t steps, const std::string& only, bool operations) {
        Experiment read = read_experiment(experiment, {}, {});
        apply({precision, batch_size, micro_batches, recompute}, &read);
        const EngineOptions options = engine_options(device, threads, memory);
        BenchOptions bench;
        bench.steps = steps;
        bench.only = only;
        bench.operations = operations;
        bench.poll = [] {
          const nb::gil_scoped_acquire locked;
          if (PyErr_CheckSignals() != 0) throw nb::python_error();
        };
        const nb::gil_scoped_release unlocked;
        return run_bench(read, options, bench);
      },
      "experiment"_a, "device"_a = "auto", "threads"_a = nb::none(), "memory"_a = nb::none(),
      "precision"_a = nb::none(), "batch_size"_a = nb::none(), "micro_batches"_a = nb::none(),
      "recompute"_a = nb::none(), "steps"_a = 0, "only"_a = "", "operations"_a = true,
      nb::sig("def run_bench(experiment: Experiment | str | os.PathLike[str], device: str = 'auto', "
              "threads: int | None = None, memory: str | int | None = None, "
              "precision: str | None = None, batch_size: int | None = None, "
              "micro_batches: int | None = None, recompute: str | None = None, steps: int = 0, "
              "only: str = '', operations: bool = True) -> BenchReport"),
      "Time of a training step and of its operations on this device, with random ids. `steps` 0: 40 on a "
      "GPU, 5 on the CPU. `only`: operations whose name begins so; \"none\": no table; ValueError if there "
      "is none of that name. Opens no data.");
}

}  // namespace andrea
