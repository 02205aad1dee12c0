// andrea.Engine: steps, losses, logits, parameters, checkpoints and generation for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "bindings/arrays.h"
#include "bindings/engine_arguments.h"
#include "bindings/locked_engine.h"
#include "bindings/paths.h"
#include "bindings/topics.h"
#include "engine/errors.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace andrea {

EngineOptions engine_options(const std::string& device, std::optional<int> threads, nb::handle memory) {
  EngineOptions options;
  options.device = device;
  if (threads) {
    if (*threads < 1) throw ConfigError("threads: must be 1 or more, is " + std::to_string(*threads));
    options.threads = *threads;
  }
  if (!memory.is_none()) {
    if (nb::isinstance<nb::str>(memory))
      options.memory_bytes = parse_bytes(nb::cast<std::string>(memory));
    else if (!nb::try_cast(memory, options.memory_bytes, false))
      throw nb::type_error("memory: a whole number of bytes or a size such as \"24GB\" is needed");
    if (options.memory_bytes < 1) throw ConfigError("memory: must be a positive number of bytes");
  }
  return options;
}

Experiment read_experiment(nb::handle given, const std::optional<std::string>& precision,
                           std::optional<std::uint32_t> seed) {
  Experiment experiment;
  if (nb::isinstance<Experiment>(given)) {
    experiment = nb::cast<const Experiment&>(given);
  } else {
    experiment = load_experiment(path_of(given));
  }
  if (precision) experiment.train.precision = parse_precision(*precision);
  if (seed) experiment.train.seed = *seed;
  return experiment;
}

nb::object parse_json(const std::string& text) {
  return nb::module_::import_("json").attr("loads")(nb::str(text.c_str(), text.size()));
}

namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

// Runs `work` without the GIL and with the engine's lock.
template <class Work>
auto alone(LockedEngine& self, const Work& work) {
  const nb::gil_scoped_release unlocked;
  const Lock lock(self.mutex);
  return work(self.engine);
}

std::vector<std::int64_t> tensor_shape(const ParamSpec& spec) {
  if (spec.is_vector) return {spec.cols};
  return {spec.rows, spec.cols};
}

// {name: array} in canonical order, read by `get` without the GIL.
nb::dict tensors(LockedEngine& self, std::vector<float> (Engine::*get)(const std::string&)) {
  std::vector<std::pair<const ParamSpec*, std::vector<float>>> read;
  alone(self, [&](Engine& engine) {
    for (const ParamSpec& spec : engine.shape().params) read.emplace_back(&spec, (engine.*get)(spec.name));
  });
  nb::dict result;
  for (auto& [spec, values] : read)
    result[spec->name.c_str()] = to_numpy(std::move(values), tensor_shape(*spec));
  return result;
}

void load_parameters(LockedEngine& self, const nb::dict& given) {
  std::vector<std::pair<std::string, std::vector<float>>> values;
  for (const auto& [key, array] : given) {
    if (!nb::isinstance<nb::str>(key)) throw nb::type_error("load_parameters: the names must be str");
    const auto name = nb::cast<std::string>(key);
    values.emplace_back(name, read_floats(array, tensor_shape(self.engine.shape().param(name)), name));
  }
  alone(self, [&](Engine& engine) { engine.set_parameters(values); });
}

StepReport train_batch(LockedEngine& self, nb::handle ids) {
  const IdArray rows = read_rows(ids, "train_batch");
  const std::int64_t n = self.engine.rows_per_step();
  const std::int64_t width = self.engine.shape().context + 1;
  if (rows.shape[0] != n || rows.shape[1] != width)
    throw nb::value_error(("train_batch: ids must be [micro_batches*batch_size, context+1] = [" +
                           std::to_string(n) + ", " + std::to_string(width) + "], are [" +
                           std::to_string(rows.shape[0]) + ", " + std::to_string(rows.shape[1]) + "]")
                              .c_str());
  return alone(self, [&](Engine& engine) { return engine.train_batch(rows.ids.data()); });
}

nb::object row_losses(LockedEngine& self, nb::handle ids) {
  const IdArray rows = read_rows(ids, "row_losses");
  std::vector<double> losses(static_cast<std::size_t>(rows.shape[0]));
  alone(self, [&](Engine& engine) {
    engine.row_losses(rows.ids.data(), rows.shape[0], rows.shape[1] - 1, losses.data());
  });
  return to_numpy(std::move(losses), {rows.shape[0]});
}

using LogitsOf = void (Engine::*)(const std::int32_t*, std::int64_t, std::int64_t, float*);

nb::object logits(LockedEngine& self, nb::handle ids, LogitsOf logits_of) {
  const IdArray rows = read_ids(ids, 2, "logits");
  if (rows.shape[0] < 1 || rows.shape[1] < 1)
    throw nb::value_error("logits: ids [B, T] need one row and one column at least");
  const std::int64_t vocab = self.engine.shape().vocab;
  std::vector<float> out(static_cast<std::size_t>(rows.shape[0] * rows.shape[1] * vocab));
  alone(self, [&](Engine& engine) {
    (engine.*logits_of)(rows.ids.data(), rows.shape[0], rows.shape[1], out.data());
  });
  return to_numpy(std::move(out), {rows.shape[0], rows.shape[1], vocab});
}

std::vector<std::int32_t> generate(LockedEngine& self, nb::handle prompt_ids, std::int64_t n,
                                   const Sampling& sampling, const nb::object& on_token) {
  const IdArray prompt = read_ids(prompt_ids, 1, "generate");
  if (n < 0) throw ConfigError("generate: n must be 0 or more, is " + std::to_string(n));
  return alone(self, [&](Engine& engine) {
    return engine.generate(prompt.ids, n, sampling, [&](std::int32_t id) {
      const nb::gil_scoped_acquire locked;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      // -1: still reading the prompt.
      return id < 0 || on_token.is_none() || !on_token(id).is(nb::bool_(false));
    });
  });
}

// One request for each prompt; n and seeds are one for all or one each.
std::vector<GenerationRequest> requests_of(const nb::sequence& prompts, nb::handle n, nb::handle seeds,
                                           const Sampling& sampling) {
  std::vector<GenerationRequest> requests;
  const auto at = [](nb::handle value, std::size_t i) -> nb::object {
    if (nb::isinstance<nb::sequence>(value)) return value[i];
    return nb::borrow(value);
  };
  const std::size_t count = nb::len(prompts);
  for (const auto& [values, what] : {std::pair{n, "n"}, {seeds, "seeds"}})
    if (nb::isinstance<nb::sequence>(values) && nb::len(values) != count)
      throw nb::value_error((std::string("generate_batch: ") + what + " has " +
                             std::to_string(nb::len(values)) + " values for " + std::to_string(count) +
                             " prompts")
                                .c_str());
  for (std::size_t i = 0; i < count; ++i) {
    GenerationRequest request;
    request.prompt = read_ids(nb::object(prompts[i]), 1, "generate_batch").ids;
    request.n = nb::cast<std::int64_t>(at(n, i));
    if (request.n < 0)
      throw ConfigError("generate_batch: n must be 0 or more, is " + std::to_string(request.n));
    request.sampling = sampling;
    request.sampling.seed = nb::cast<std::uint32_t>(at(seeds, i));
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<std::vector<std::int32_t>> generate_batch(LockedEngine& self, const nb::sequence& prompts,
                                                      nb::handle n, nb::handle seeds,
                                                      const Sampling& sampling, const nb::object& on_token) {
  const std::vector<GenerationRequest> requests = requests_of(prompts, n, seeds, sampling);
  return alone(self, [&](Engine& engine) {
    return engine.generate(requests, [&](std::size_t request, std::int32_t id) {
      const nb::gil_scoped_acquire locked;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      return id < 0 || on_token.is_none() || !on_token(request, id).is(nb::bool_(false));
    });
  });
}

std::string report_text(const StepReport& report) {
  char text[200];
  std::snprintf(text, sizeof text, "StepReport(step=%lld, loss=%.6g, grad_norm=%.6g, lr=%.6g, rows=%zu%s)",
                static_cast<long long>(report.step), static_cast<double>(report.loss),
                static_cast<double>(report.grad_norm), report.lr, report.rows.size(),
                report.applied ? "" : ", skipped");
  return text;
}

std::string row_text(const Row& row) {
  char text[160];
  std::snprintf(text, sizeof text, "Row(step=%lld, row=%lld, source=%lld, documents=%lld, loss=%.6g)",
                static_cast<long long>(row.step), static_cast<long long>(row.row),
                static_cast<long long>(row.source), static_cast<long long>(row.documents),
                static_cast<double>(row.loss));
  return text;
}

void bind_reports(nb::module_& m) {
  nb::class_<Row>(m, "Row", "One row of a step.")
      .def_ro("step", &Row::step, "0-based step")
      .def_ro("row", &Row::row, "0..micro_batches*batch_size-1")
      .def_ro("source", &Row::source, "index into the experiment's sources; -1 for ids given by hand")
      .def_ro("documents", &Row::documents, "documents that began in this row")
      .def_ro("loss", &Row::loss, "mean over the row, nats")
      .def("__repr__", &row_text);
  nb::class_<StepReport>(m, "StepReport", "What one finished step says.")
      .def_ro("step", &StepReport::step, "0-based step")
      .def_ro("loss", &StepReport::loss, "mean over the step's rows, nats")
      .def_ro("grad_norm", &StepReport::grad_norm,
              "global L2 norm, averaged over micro-batches, unscaled, before clipping")
      .def_ro("lr", &StepReport::lr, "learning rate of this step")
      .def_ro("loss_scale", &StepReport::loss_scale, "loss scale of this step; 1 in fp32 and bf16")
      .def_ro("applied", &StepReport::applied, "False: something was not finite, the update was skipped")
      .def_ro("rows", &StepReport::rows, "the rows of the step, in row order")
      .def("__repr__", &report_text);
}

nb::dict device_dict(const DeviceInfo& info) {
  nb::dict result;
  result["backend"] = info.backend;
  result["name"] = info.name;
  result["arithmetic"] = info.arithmetic;
  result["details"] = info.details;
  nb::list products;
  for (const GemmChoice& choice : info.gemm.products)
    products.append(nb::make_tuple(choice.product, choice.algorithm));
  result["products"] = products;
  result["total_bytes"] = info.total_bytes;
  result["free_bytes"] = info.free_bytes;
  result["threads"] = info.threads;
  return result;
}

void bind_devices(nb::module_& m) {
  m.def("backends_present", &backends_present, "Devices that can be used here and now, \"cpu\" first.");
  m.def("backends_missing", &backends_missing, "One sentence for each back end that cannot be used.");
  m.def(
      "device_info",
      [](const std::string& device) {
        BackendRequest request;
        request.device = device;
        return device_dict(make_backend(request).device->info());
      },
      "device"_a = "auto", nb::sig("def device_info(device: str = 'auto') -> dict[str, typing.Any]"),
      "Name, arithmetic and memory of a device. Raises DeviceError if it is not there.");
  m.def(
      "count_parameters", [](const Experiment& experiment) { return ModelShape(experiment.model).n_params; },
      "experiment"_a, "Exact number of parameters of an Experiment's model.");
}

void bind_engine(nb::module_& m) {
  nb::class_<LockedEngine>(m, "Engine", "An experiment made ready to train, on one device.")
      .def(
          "__init__",
          [](LockedEngine* self, nb::handle experiment, const std::string& device, std::optional<int> threads,
             nb::handle memory, const std::optional<std::string>& precision,
             std::optional<std::uint32_t> seed, bool training, std::int64_t sequences,
             const nb::object& on_plan) {
            const Experiment read = read_experiment(experiment, precision, seed);
            EngineOptions options = engine_options(device, threads, memory);
            options.training = training;
            options.sequences = sequences;
            if (!on_plan.is_none())
              options.on_plan = [&on_plan](const std::string& text) {
                const nb::gil_scoped_acquire locked;
                on_plan(text);
              };
            const nb::gil_scoped_release unlocked;
            new (self) LockedEngine(read, options);
          },
          "experiment"_a, "device"_a = "auto", "threads"_a = nb::none(), "memory"_a = nb::none(),
          nb::kw_only(), "precision"_a = nb::none(), "seed"_a = nb::none(), "training"_a = true,
          "sequences"_a = 1, "on_plan"_a = nb::none(),
          nb::sig(
              "def __init__(self, experiment: Experiment | str | os.PathLike[str], device: str = 'auto', "
              "threads: int | None = None, memory: str | int | None = None, *, "
              "precision: str | None = None, seed: int | None = None, training: bool = True, "
              "sequences: int = 1, on_plan: collections.abc.Callable[[str], object] | None = None) -> None"),
          "`experiment`: a path or an Experiment. `device`: cpu, cuda or auto. `threads`: CPU threads, which "
          "never change the bits. `memory`: budget in bytes or as \"24GB\"; default: what is free. "
          "`precision` and `seed` replace those of the experiment. `training=False`: weights only, a quarter "
          "of the memory; it cannot train or save. `sequences`: texts that generate_batch() writes at once. "
          "`on_plan(text)` sees the memory plan before anything is allocated.\n\nRaises ConfigError, "
          "DeviceError, and "
          "OutOfMemory with the largest batch that fits. Opens no data and no tokenizer.")
      .def(
          "step", [](LockedEngine& self) { return alone(self, [](Engine& e) { return e.step(); }); },
          "Train one step on the next rows of the sources. The first call opens and verifies them.")
      .def("train_batch", &train_batch, "ids"_a,
           nb::sig("def train_batch(self, ids: numpy.typing.ArrayLike) -> StepReport"),
           "Train one step on integer ids [micro_batches*batch_size, context+1].")
      .def(
          "loss",
          [](LockedEngine& self, nb::handle ids) {
            const IdArray rows = read_rows(ids, "loss");
            return alone(self, [&](Engine& engine) {
              return engine.loss(rows.ids.data(), rows.shape[0], rows.shape[1] - 1);
            });
          },
          "ids"_a, nb::sig("def loss(self, ids: numpy.typing.ArrayLike) -> float"),
          "Mean loss in nats of integer ids [B, T+1], T up to the context.")
      .def(
          "row_losses", &row_losses, "ids"_a,
          nb::sig("def row_losses(self, ids: numpy.typing.ArrayLike) -> numpy.typing.NDArray[numpy.float64]"),
          "Mean loss of each row of ids [B, T+1]: float64 [B].")
      .def(
          "decode_logits",
          [](LockedEngine& self, nb::handle ids) { return logits(self, ids, &Engine::decode_logits); },
          "ids"_a,
          nb::sig(
              "def decode_logits(self, ids: numpy.typing.ArrayLike) -> numpy.typing.NDArray[numpy.float32]"),
          "The same as generation sees them: token after token through its cache, B up to `sequences`.")
      .def(
          "logits", [](LockedEngine& self, nb::handle ids) { return logits(self, ids, &Engine::logits); },
          "ids"_a,
          nb::sig("def logits(self, ids: numpy.typing.ArrayLike) -> numpy.typing.NDArray[numpy.float32]"),
          "Logits float32 [B, T, V] of integer ids [B, T], T up to the context.")
      .def(
          "parameters", [](LockedEngine& self) { return tensors(self, &Engine::get_parameter); },
          nb::sig("def parameters(self) -> dict[str, numpy.typing.NDArray[numpy.float32]]"),
          "Copies of all parameters: {canonical name: float32 array}.")
      .def(
          "gradients", [](LockedEngine& self) { return tensors(self, &Engine::get_gradient); },
          nb::sig("def gradients(self) -> dict[str, numpy.typing.NDArray[numpy.float32]]"),
          "Copies of the last step's gradients: averaged over micro-batches, unscaled, before clipping.")
      .def("load_parameters", &load_parameters, "tensors"_a,
           nb::sig(
               "def load_parameters(self, tensors: dict[str, numpy.typing.NDArray[numpy.float32]]) -> None"),
           "Replace the named parameters. All names and shapes are checked before anything changes.")
      .def(
          "save",
          [](LockedEngine& self, nb::handle path) {
            const std::string name = path_of(path);
            alone(self, [&](Engine& engine) { engine.save(name); });
          },
          "path"_a, nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Write weights, moments and step as a .bin, atomically.")
      .def(
          "load",
          [](LockedEngine& self, nb::handle path) {
            const std::string name = path_of(path);
            alone(self, [&](Engine& engine) { engine.load(name); });
          },
          "path"_a, nb::sig("def load(self, path: str | os.PathLike[str]) -> None"),
          "Read a .bin: weights, moments and step. The position in the data is not in it.")
      .def(
          "generate",
          [](LockedEngine& self, nb::handle prompt_ids, std::int64_t n, double temperature,
             std::int64_t top_k, double top_p, double repetition_penalty, std::uint32_t seed,
             const nb::object& on_token) {
            Sampling sampling;
            sampling.temperature = temperature;
            sampling.top_k = top_k;
            sampling.top_p = top_p;
            sampling.repetition_penalty = repetition_penalty;
            sampling.seed = seed;
            return generate(self, prompt_ids, n, sampling, on_token);
          },
          "prompt_ids"_a, "n"_a, "temperature"_a = 0.8, "top_k"_a = 40, "top_p"_a = 1.0,
          "repetition_penalty"_a = 1.0, "seed"_a = 42, "on_token"_a = nb::none(),
          nb::sig("def generate(self, prompt_ids: numpy.typing.ArrayLike, n: int, temperature: float = 0.8, "
                  "top_k: int = 40, top_p: float = 1.0, repetition_penalty: float = 1.0, seed: int = 42, "
                  "on_token: collections.abc.Callable[[int], object] | None = None) -> list[int]"),
          "`n` new ids after the prompt, which begins with BOS by itself. temperature 0: the most likely "
          "id. `on_token(id)` is called for each; returning False stops.")
      .def(
          "generate_batch",
          [](LockedEngine& self, const nb::sequence& prompts, nb::handle n, double temperature,
             std::int64_t top_k, double top_p, double repetition_penalty, nb::handle seeds,
             const nb::object& on_token) {
            Sampling sampling;
            sampling.temperature = temperature;
            sampling.top_k = top_k;
            sampling.top_p = top_p;
            sampling.repetition_penalty = repetition_penalty;
            return generate_batch(self, prompts, n, seeds, sampling, on_token);
          },
          "prompts"_a, "n"_a, "temperature"_a = 0.8, "top_k"_a = 40, "top_p"_a = 1.0,
          "repetition_penalty"_a = 1.0, "seeds"_a = 42, "on_token"_a = nb::none(),
          nb::sig("def generate_batch(self, prompts: collections.abc.Sequence[numpy.typing.ArrayLike], "
                  "n: int | collections.abc.Sequence[int], temperature: float = 0.8, top_k: int = 40, "
                  "top_p: float = 1.0, repetition_penalty: float = 1.0, "
                  "seeds: int | collections.abc.Sequence[int] = 42, "
                  "on_token: collections.abc.Callable[[int, int], object] | None = None) "
                  "-> list[list[int]]"),
          "The same for several prompts, `sequences` of them at once; `n` and `seeds` are one for all or one "
          "each. `on_token(index, id)` is called for each new id; returning False stops that text.")
      .def(
          "set_source_weights",
          [](LockedEngine& self, const nb::dict& weights) {
            std::vector<std::pair<std::string, double>> read;
            for (const auto& [name, weight] : weights)
              read.emplace_back(nb::cast<std::string>(name), nb::cast<double>(weight));
            alone(self, [&](Engine& engine) { engine.set_source_weights(read); });
          },
          "weights"_a, nb::sig("def set_source_weights(self, weights: dict[str, float]) -> None"),
          "Relative weights by source name, from the next row on; others keep theirs.")
      .def_prop_ro(
          "experiment", [](LockedEngine& self) { return self.engine.experiment(); },
          "The effective experiment.")
      .def_prop_ro(
          "plan",
          [](LockedEngine& self) {
            nb::object plan = parse_json(
                plan_json(self.engine.shape(), self.engine.plan(), self.engine.available_bytes(), 0));
            plan.attr("pop")("largest_batch_size");
            return nb::cast<nb::dict>(plan);
          },
          nb::for_getter(nb::sig("def plan(self) -> dict[str, typing.Any]")),
          "The memory plan: bytes by group and by buffer.")
      .def_prop_ro(
          "plan_text",
          [](LockedEngine& self) {
            return describe_plan(self.engine.shape(), self.engine.plan(), self.engine.available_bytes());
          },
          "The memory plan for people.")
      .def_prop_ro(
          "context", [](LockedEngine& self) { return self.engine.shape().context; },
          "Positions the model sees at once.")
      .def_prop_ro(
          "n_params", [](LockedEngine& self) { return self.engine.shape().n_params; },
          "Exact number of parameters.")
      .def_prop_ro(
          "steps_done", [](LockedEngine& self) { return self.engine.steps_done(); },
          "Finished steps: the index of the next one.")
      .def_prop_ro(
          "device", [](LockedEngine& self) { return device_dict(self.engine.device_info()); },
          nb::for_getter(nb::sig("def device(self) -> dict[str, typing.Any]")),
          "Back end, name, arithmetic and memory of the device.")
      .def_prop_ro(
          "note", [](LockedEngine& self) { return self.engine.note(); },
          "Why \"auto\" chose this device; empty if there is nothing to say.");
}

}  // namespace

void init_engine(nb::module_& m) {
  bind_reports(m);
  bind_devices(m);
  bind_engine(m);
}

}  // namespace andrea
