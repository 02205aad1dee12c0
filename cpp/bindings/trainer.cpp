// andrea._core.run_training: the trainer with its display, policy and scorer in Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <utility>

#include "apps/progress_lines.h"
#include "apps/text_codec.h"
#include "bindings/arrays.h"
#include "bindings/locked_engine.h"
#include "bindings/topics.h"
#include "engine/run/policy.h"
#include "engine/run/signals.h"
#include "engine/run/trainer.h"
#include "tokenizer/tokenizer.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace andrea {
namespace {

// Samples may end inside a character and paths may be any bytes; Python's str may not.
nb::str text_of(const std::string& bytes) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace"));
}

nb::dict records_dict(const std::vector<Row>& rows) {
  const auto n = static_cast<std::int64_t>(rows.size());
  std::vector<std::int64_t> step, row, source, documents;
  std::vector<float> loss;
  for (const Row& r : rows) {
    step.push_back(r.step);
    row.push_back(r.row);
    source.push_back(r.source);
    documents.push_back(r.documents);
    loss.push_back(r.loss);
  }
  nb::dict result;
  result["step"] = to_numpy(std::move(step), {n});
  result["row"] = to_numpy(std::move(row), {n});
  result["source"] = to_numpy(std::move(source), {n});
  result["documents"] = to_numpy(std::move(documents), {n});
  result["loss"] = to_numpy(std::move(loss), {n});
  return result;
}

nb::list sources_list(const std::vector<SourceInfo>& sources) {
  nb::list result;
  for (const SourceInfo& source : sources) {
    nb::dict entry;
    entry["name"] = source.name;
    entry["n_docs"] = source.n_docs;
    entry["n_tokens"] = source.n_tokens;
    entry["n_bytes"] = source.n_bytes;
    result.append(entry);
  }
  return result;
}

// A policy that lives in Python. Called by a thread that does not hold the GIL.
class PythonPolicy final : public Policy {
 public:
  explicit PythonPolicy(nb::object policy) : policy_(std::move(policy)) {}
  ~PythonPolicy() override {
    const nb::gil_scoped_acquire locked;
    policy_.reset();
  }
  PythonPolicy(const PythonPolicy&) = delete;
  PythonPolicy& operator=(const PythonPolicy&) = delete;

  Phase begin_phase(std::int64_t step, const std::vector<Row>& records) override {
    const nb::gil_scoped_acquire locked;
    const nb::object answer = policy_.attr("begin_phase")(step, records_dict(records));
    Phase phase;
    phase.first_step = step;
    phase.steps = nb::cast<std::int64_t>(answer[0]);
    for (nb::handle weight : answer[1]) phase.weights.push_back(nb::cast<double>(nb::float_(weight)));
    phase.log = nb::cast<std::string>(answer[2]);
    return phase;
  }
  std::string state() const override {
    const nb::gil_scoped_acquire locked;
    return nb::cast<std::string>(policy_.attr("state")());
  }
  void restore(const std::string& state) override {
    const nb::gil_scoped_acquire locked;
    policy_.attr("restore")(state);
  }
  std::int64_t not_reproducible_from() const override {
    const nb::gil_scoped_acquire locked;
    return nb::cast<std::int64_t>(nb::getattr(policy_, "not_reproducible_from", nb::int_(-1)));
  }

 private:
  nb::object policy_;
};

// The Python side of the hooks. They outlive the run, which holds only references to them.
struct Callbacks {
  nb::object on_progress, on_event, poll, policy, score;
};

TrainerHooks make_hooks(const Callbacks& python) {
  TrainerHooks hooks;
  if (!python.on_progress.is_none())
    hooks.on_progress = [&python](const Progress& progress) {
      const nb::gil_scoped_acquire locked;
      python.on_progress(progress);
    };
  if (!python.on_event.is_none())
    hooks.on_event = [&python](const Event& event) {
      const nb::gil_scoped_acquire locked;
      python.on_event(event);
    };
  hooks.poll = [&python] {
    const nb::gil_scoped_acquire locked;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    return !python.poll.is_none() && nb::cast<bool>(nb::bool_(python.poll()));
  };
  if (!python.policy.is_none())
    hooks.make_policy = [&python](const Experiment& experiment, const std::vector<SourceInfo>& sources) {
      const nb::gil_scoped_acquire locked;
      nb::object policy = python.policy(experiment, sources_list(sources));
      if (policy.is_none()) return make_constant_policy(experiment, sources);
      return std::unique_ptr<Policy>(std::make_unique<PythonPolicy>(std::move(policy)));
    };
  if (!python.score.is_none())
    hooks.score = [&python](const std::string& text) {
      const nb::gil_scoped_acquire locked;
      const nb::object answer = python.score(text_of(text));
      return Coherence{nb::cast<double>(nb::float_(answer[0])), nb::cast<std::string>(answer[1])};
    };
  return hooks;
}

int run_training(LockedEngine& self, const TrainerOptions& options, const Tokenizer* tokenizer,
                 const Callbacks& python) {
  const TrainerHooks hooks = make_hooks(python);
  const nb::gil_scoped_release unlocked;
  const std::lock_guard<std::recursive_mutex> lock(self.mutex);
  std::optional<TextCodec> codec;
  if (tokenizer) codec = text_codec(*tokenizer, self.engine.experiment());
  Trainer trainer(self.engine, options, codec ? &*codec : nullptr, hooks);
  return static_cast<int>(trainer.run());
}

void bind_display(nb::module_& m) {
  nb::class_<Progress>(m, "Progress", "What a display may show, after each step.")
      .def_ro("step", &Progress::step, "finished steps")
      .def_ro("steps", &Progress::steps, "steps of the whole run")
      .def_ro("end", &Progress::end, "step at which this process ends")
      .def_ro("loss", &Progress::loss)
      .def_ro("smma", &Progress::smma)
      .def_ro("grad_norm", &Progress::grad_norm)
      .def_ro("lr", &Progress::lr)
      .def_ro("tokens_per_second", &Progress::tokens_per_second, "of this process, smoothed")
      .def_ro("seconds_left", &Progress::seconds_left, "from this process's own rate; < 0: unknown yet")
      .def_ro("loss_scale", &Progress::loss_scale)
      .def_ro("skipped", &Progress::skipped, "skipped steps of the run")
      .def_ro("applied", &Progress::applied, "False: this step's update was skipped");
  m.def("progress_line", &progress_line, "progress"_a, "A step in one plain line, as the binary writes it.");
  nb::class_<Event>(m, "Event", "Something worth a line in the log and on the time line.")
      .def_ro("kind", &Event::kind)
      .def_ro("step", &Event::step)
      .def_prop_ro(
          "message", [](const Event& event) { return text_of(event.message); }, "one line for people")
      .def_prop_ro(
          "json", [](const Event& event) { return text_of(event.json); }, "details")
      .def_prop_ro(
          "line", [](const Event& event) { return text_of(event_line(event)); },
          "as the binary writes it; empty: only for the history");
}

struct Installed {
  std::optional<SignalHandlers> handlers;
};

void bind_signals(nb::module_& m) {
  nb::class_<Installed>(
      m, "SignalHandlers",
      "While entered: SIGTERM and SIGINT ask the run to stop, SIGUSR1 asks for a checkpoint. "
      "The previous handlers come back at the end.")
      .def(nb::init<>())
      .def(
          "__enter__",
          [](nb::handle self) {
            nb::cast<Installed&>(self).handlers.emplace();
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> SignalHandlers"))
      .def(
          "__exit__", [](Installed& self, const nb::args&) { self.handlers.reset(); },
          nb::sig("def __exit__(self, *args: object) -> None"));
  m.def("stop_signal", &SignalRequests::stop_signal, "The signal that asked the run to stop; 0: none.");
}

}  // namespace

void init_trainer(nb::module_& m) {
  bind_display(m);
  bind_signals(m);
  m.def(
      "run_training",
      [](LockedEngine& engine, const std::string& out, const Tokenizer* tokenizer, bool resume,
         std::optional<std::int64_t> steps, const std::optional<std::string>& from, bool allow_data_change,
         bool allow_config_change, bool polish, bool past_gate, nb::object on_progress, nb::object on_event,
         nb::object poll, nb::object policy, nb::object score) {
        TrainerOptions options;
        options.out = out;
        options.resume = resume;
        options.steps = steps.value_or(-1);
        options.from = from.value_or("");
        options.allow_data_change = allow_data_change;
        options.allow_config_change = allow_config_change;
        options.polish = polish;
        options.past_gate = past_gate;
        const Callbacks python{std::move(on_progress), std::move(on_event), std::move(poll),
                               std::move(policy), std::move(score)};
        return run_training(engine, options, tokenizer, python);
      },
      "engine"_a, "out"_a, "tokenizer"_a = nb::none(), nb::kw_only(), "resume"_a = false,
      "steps"_a = nb::none(), "from_bin"_a = nb::none(), "allow_data_change"_a = false,
      "allow_config_change"_a = false, "polish"_a = false, "past_gate"_a = false,
      "on_progress"_a = nb::none(), "on_event"_a = nb::none(), "poll"_a = nb::none(), "policy"_a = nb::none(),
      "score"_a = nb::none(),
      "Train to the end, to a signal or to the coherence gate; returns the exit code. `policy(experiment, "
      "sources)` returns None for the constant policies, or an object with begin_phase(step, records) -> "
      "(steps, weights, log JSON), state() -> str and restore(str); records are arrays step, row, source, "
      "documents, loss. `score(text)` returns (0..100, JSON of its parts). `poll()` is called often; True "
      "stops as SIGTERM would.");
}

}  // namespace andrea
