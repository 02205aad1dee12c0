// Experiments, .btok sources and the loader for Python.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "bindings/paths.h"
#include "bindings/topics.h"
#include "engine/config/experiment.h"
#include "engine/data/loader.h"
#include "engine/errors.h"
#include "engine/hash/philox.h"
#include "engine/run/checkpoint_pair.h"
#include "engine/run/run_state.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace andrea {
namespace {

using Ids = nb::ndarray<nb::numpy, std::int32_t>;

/// A NumPy array [rows, columns] (or [rows] if columns is 0) that owns the ids.
Ids own(std::vector<std::int32_t>&& ids, std::size_t rows, std::size_t columns) {
  auto* kept = new std::vector<std::int32_t>(std::move(ids));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<std::int32_t>*>(p); });
  const std::size_t shape[2] = {rows, columns};
  return Ids(kept->data(), columns == 0 ? 1 : 2, shape, owner);
}

std::size_t counted(std::int64_t n, const char* what) {
  if (n < 0) throw nb::value_error((std::string(what) + " is negative").c_str());
  return static_cast<std::size_t>(n);
}

using CursorTuple = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

/// A loader with its lock: calls release the GIL.
class LockedLoader {
 public:
  LockedLoader(const std::vector<std::pair<std::string, std::string>>& sources, std::uint32_t seed,
               std::int64_t context)
      : context_(context) {
    std::vector<Loader::Source> opened;
    for (const auto& [name, path] : sources) opened.push_back({name, BtokFile(path)});
    loader_ = std::make_unique<Loader>(std::move(opened), seed, context);
  }

  std::pair<Ids, std::vector<Row>> next(std::int64_t step, std::int64_t n_rows) {
    const std::size_t rows = counted(n_rows, "n_rows");
    const auto columns = static_cast<std::size_t>(context_ + 1);
    std::vector<std::int32_t> ids(rows * columns);
    std::vector<Row> report;
    {
      const nb::gil_scoped_release unlocked;
      const std::lock_guard<std::mutex> lock(mutex_);
      report = loader_->next(step, n_rows, ids.data());
    }
    return {own(std::move(ids), rows, columns), std::move(report)};
  }

  void set_weights(const std::vector<double>& weights) {
    const std::lock_guard<std::mutex> lock(mutex_);
    loader_->set_weights(weights);
  }
  std::vector<double> weights() const { return loader_->weights(); }

  void set_cursors(const std::vector<CursorTuple>& cursors) {
    std::vector<Cursor> converted;
    for (const auto& [epoch, position, offset] : cursors) converted.push_back({epoch, position, offset});
    const std::lock_guard<std::mutex> lock(mutex_);
    loader_->set_cursors(converted);
  }
  std::vector<CursorTuple> cursors() const {
    std::vector<CursorTuple> converted;
    for (const Cursor& c : loader_->cursors()) converted.emplace_back(c.epoch, c.position, c.offset);
    return converted;
  }
  std::int64_t documents_consumed(std::int64_t k) const {
    if (k < 0 || k >= static_cast<std::int64_t>(loader_->sources().size()))
      throw nb::index_error("no such source");
    return loader_->documents_consumed(k);
  }

 private:
  std::unique_ptr<Loader> loader_;
  std::int64_t context_;
  std::mutex mutex_;
};

void bind_experiment(nb::module_& m) {
  nb::class_<Experiment>(m, "Experiment", "One run, as its experiment file describes it; read-only.")
      .def_ro("name", &Experiment::name, "Begins the file names of the run.")
      .def_ro("origin", &Experiment::origin, "Path of the file it was read from.")
      .def("effective_json", &Experiment::effective_json,
           "The config with every default written out, as sorted compact JSON; paths absolute.")
      .def("__repr__",
           [](const Experiment& e) { return "Experiment(" + e.name + " from " + e.origin + ")"; });
  m.def(
      "load_experiment",
      [](nb::handle path) {
        const std::string file = path_of(path);
        const nb::gil_scoped_release unlocked;
        return load_experiment(file);
      },
      "path"_a, nb::sig("def load_experiment(path: str | bytes | os.PathLike[str]) -> Experiment"),
      "Reads and checks an experiment file; ConfigError lists every fault with its JSON path. Opens no "
      "data.");
  m.def("parse_experiment", &parse_experiment, "text"_a, "directory"_a = ".", "origin"_a = "the experiment",
        "The same from text; relative paths are relative to `directory`.");
  m.def("config_differences", &config_differences, "before"_a, "after"_a,
        "Keys in which two effective configs differ, with both values; where files lie is no difference.");
  m.def(
      "check_state", [](const std::string& text, const std::string& path) { parse_run_state(text, path); },
      "text"_a, "path"_a,
      "Raises CheckpointError, as a resume does, if the text of the state file `path` is damaged: its hash, "
      "or a "
      "field that is missing, unknown or of the wrong type.");
}

void bind_randomness(nb::module_& m) {
  m.def(
      "philox",
      [](std::uint32_t seed, std::uint32_t stream, const std::array<std::uint32_t, 4>& counter) {
        return Philox(seed, stream)(counter);
      },
      "seed"_a, "stream"_a, "counter"_a,
      "The four words Philox4x32-10 gives for key (seed, stream) and a counter.");
  m.def("permuted", &permuted, "seed"_a, "source"_a, "epoch"_a, "position"_a, "n"_a,
        "Which of a source's n documents stands at `position` of an epoch.");
}

void bind_data(nb::module_& m) {
  nb::class_<BtokFile>(m, "BtokFile",
                       "A .btok file, memory-mapped; header and offsets are checked at opening.")
      .def(
          "__init__", [](BtokFile* self, nb::handle path) { new (self) BtokFile(path_of(path)); }, "path"_a,
          nb::sig("def __init__(self, path: str | bytes | os.PathLike[str]) -> None"))
      .def("verify", &BtokFile::verify, "vocab_size"_a, nb::call_guard<nb::gil_scoped_release>(),
           "Reads everything: every id below vocab_size and the content hash. DataError names document and "
           "id.")
      .def_prop_ro("vocab_size", &BtokFile::vocab_size)
      .def_prop_ro("n_docs", &BtokFile::n_docs)
      .def_prop_ro("n_tokens", &BtokFile::n_tokens)
      .def_prop_ro("n_bytes", &BtokFile::n_bytes, "Bytes of the text.")
      .def_prop_ro("tokenizer_hash", &BtokFile::tokenizer_hash)
      .def_prop_ro("content_hash", &BtokFile::content_hash)
      .def(
          "document",
          [](const BtokFile& self, std::int64_t doc) {
            if (doc < 0 || doc >= self.n_docs()) throw nb::index_error("no such document");
            const std::int64_t n = self.document_length(doc);
            std::vector<std::int32_t> ids(static_cast<std::size_t>(n));
            self.copy_ids(self.document_begin(doc), n, ids.data());
            return own(std::move(ids), static_cast<std::size_t>(n), 0);
          },
          "doc"_a, "The ids of one document, int32.")
      .def(
          "eval_rows",
          [](const BtokFile& self, std::int64_t context, std::int64_t first, std::int64_t max_rows) {
            if (context < 1 || first < 0)
              throw nb::value_error("context must be positive, first not negative");
            const auto columns = static_cast<std::size_t>(context + 1);
            std::vector<std::int32_t> ids(counted(max_rows, "max_rows") * columns);
            const std::int64_t rows = eval_rows(self, context, first, max_rows, ids.data());
            ids.resize(static_cast<std::size_t>(rows) * columns);
            return own(std::move(ids), static_cast<std::size_t>(rows), columns);
          },
          "context"_a, "first"_a, "max_rows"_a,
          "Evaluation windows [rows, context + 1] from number `first`; neighbours share one id.");

  nb::class_<LockedLoader>(m, "Loader", "Rows drawn from endless streams of documents.")
      .def(nb::init<const std::vector<std::pair<std::string, std::string>>&, std::uint32_t, std::int64_t>(),
           "sources"_a, "seed"_a, "context"_a, "sources: (name, path of a .btok) each.")
      .def("next", &LockedLoader::next, "step"_a, "n_rows"_a,
           "Ids int32 [n_rows, context + 1] of a step, and a Row for each; moves the cursors.")
      .def("set_weights", &LockedLoader::set_weights, "weights"_a,
           "Relative weights, one a source: finite, not negative, one above 0.")
      .def_prop_ro("weights", &LockedLoader::weights)
      .def_prop_rw("cursors", &LockedLoader::cursors, &LockedLoader::set_cursors,
                   "(epoch, position, offset) of each source: all the state there is.")
      .def("documents_consumed", &LockedLoader::documents_consumed, "source"_a,
           "Documents whose BOS was read, over the source's life.");
}

void bind_checkpoints(nb::module_& m) {
  m.def(
      "state_beside",
      [](nb::handle path) {
        const std::string file = path_of(path);
        StateBeside found;
        {
          const nb::gil_scoped_release unlocked;
          found = state_beside(file);
        }
        const auto size = [](const std::string& text) { return static_cast<Py_ssize_t>(text.size()); };
        return nb::make_tuple(
            nb::steal<nb::str>(PyUnicode_DecodeFSDefaultAndSize(found.path.data(), size(found.path))),
            nb::steal<nb::str>(PyUnicode_DecodeUTF8(found.reason.data(), size(found.reason), "replace")));
      },
      "path"_a, nb::sig("def state_beside(path: str | bytes | os.PathLike[str]) -> tuple[str, str]"),
      "The path of the state that was written with this very .bin, by its hash, and \"\"; or \"\" and why "
      "there "
      "is none. CheckpointError if the state of its step was written with other bytes.");
}

}  // namespace

void init_files(nb::module_& m) {
  bind_checkpoints(m);
  bind_experiment(m);
  bind_randomness(m);
  bind_data(m);
}

}  // namespace andrea
