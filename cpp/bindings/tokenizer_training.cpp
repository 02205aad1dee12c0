// Learning a vocabulary: counters for text, and the training itself.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings/topics.h"
#include "engine/errors.h"
#include "tokenizer/trainer.h"
#include "tokenizer/unicode_classes.h"

namespace nb = nanobind;

namespace andrea {
namespace {

std::string_view view(const nb::bytes& bytes) { return {bytes.c_str(), bytes.size()}; }

void count_documents(WordCounter& counter, const std::vector<nb::bytes>& documents) {
  std::vector<std::string_view> views;
  views.reserve(documents.size());
  for (const nb::bytes& document : documents) views.push_back(view(document));
  const nb::gil_scoped_release release;
  counter.add(views);
}

std::size_t count_block(WordCounter& counter, const nb::bytes& block, bool last) {
  const std::string_view bytes = view(block);
  const nb::gil_scoped_release release;
  return counter.add_block(bytes, last);
}

// Types in the order of the vocabulary's own selection, with the settings that were given by name.
nb::tuple train(TypeTable& table, std::size_t n_segments, int threads, int rounds, double boundary_weight,
                double corpus_weight, double gate_bits, std::size_t most_types, std::int64_t least_count,
                std::uint64_t seed, nb::object progress) {
  TrainingSettings settings;
  settings.selection.segments = n_segments;
  settings.selection.threads = threads;
  settings.selection.rounds = rounds;
  settings.selection.boundary_weight = boundary_weight;
  settings.description.corpus_weight = corpus_weight;
  settings.description.gate_bits = gate_bits;
  settings.description.seed = seed;
  settings.most_types = most_types;
  settings.least_count = least_count;
  const TrainingProgress report = [&progress](const char* stage, int done, int all) {
    const nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) nb::raise_python_error();
    if (!progress.is_none()) progress(stage, done, all);
  };
  TrainingResult result;
  {
    const nb::gil_scoped_release release;
    result = train_segments(table.take(settings.most_types), settings, report);
  }
  nb::dict facts;
  facts["types"] = result.types;
  facts["words"] = result.words;
  facts["candidates"] = result.candidates;
  facts["ids"] = result.selected.ids;
  return nb::make_tuple(result.selected.segments, result.selected.counts, facts);
}

// (letters, entropy before each letter, whether a morph begins there) of each word, for looking at what was
// learned.
nb::list analyse_words(TypeTable& table, std::size_t most_types, double gate_bits, double corpus_weight,
                       std::uint64_t seed, int threads) {
  DescriptionSettings settings;
  settings.gate_bits = gate_bits;
  settings.corpus_weight = corpus_weight;
  settings.seed = seed;
  std::vector<WordAnalysis> words;
  {
    const nb::gil_scoped_release release;
    words = analyse(table.take(most_types), settings, threads);
  }
  nb::list list;
  for (WordAnalysis& word : words)
    list.append(nb::make_tuple(std::move(word.letters), std::move(word.entropy), std::move(word.begins)));
  return list;
}

}  // namespace

void init_tokenizer_training(nb::module_& m) {
  m.attr("UNICODE_VERSION") = unicode_version();

  nb::class_<WordCounter>(m, "WordCounter", "Counts the pre-tokens of one source.")
      .def(nb::init<int, std::size_t>(), nb::arg("threads") = 0, nb::arg("max_types") = 3'000'000)
      .def("add", &count_documents, nb::arg("documents"), "Count whole documents (bytes).")
      .def("add_block", &count_block, nb::arg("block"), nb::arg("last"),
           "Count a block of a stream up to a safe edge; gives the number of bytes used.")
      .def_prop_ro("bytes", &WordCounter::bytes, "Bytes counted so far.")
      .def("n_types", [](WordCounter& c) { return c.types().size(); }, "Number of distinct pre-tokens.");

  nb::class_<TypeTable>(m, "TypeTable", "Counts of several sources, each times its weight.")
      .def(nb::init<>())
      .def(
          "add", [](TypeTable& t, WordCounter& c, double weight) { t.add(c.types(), weight); },
          nb::arg("counter"), nb::arg("weight") = 1.0, nb::call_guard<nb::gil_scoped_release>());

  m.def("train_segments", &train, nb::arg("table"), nb::arg("n_segments"), nb::kw_only(), nb::arg("threads"),
        nb::arg("rounds"), nb::arg("boundary_weight"), nb::arg("corpus_weight"), nb::arg("gate_bits"),
        nb::arg("most_types"), nb::arg("least_count"), nb::arg("seed"), nb::arg("progress") = nb::none(),
        nb::sig(
            "def train_segments(table: TypeTable, n_segments: int, *, threads: int, rounds: int, "
            "boundary_weight: float, corpus_weight: float, gate_bits: float, most_types: int, "
            "least_count: int, seed: int, progress: collections.abc.Callable[[str, int, int], None] | None = "
            "None) -> tuple[list[str], list[int], dict[str, int]]"),
        "Segments best first, their counts, and facts about the training.");

  m.def("analyse_words", &analyse_words, nb::arg("table"), nb::kw_only(), nb::arg("most_types") = 500'000,
        nb::arg("gate_bits") = DescriptionSettings().gate_bits,
        nb::arg("corpus_weight") = DescriptionSettings().corpus_weight, nb::arg("seed") = 1,
        nb::arg("threads") = 0,
        nb::sig("def analyse_words(table: TypeTable, *, most_types: int = 500000, gate_bits: float = 2.0, "
                "corpus_weight: float = 1.8, seed: int = 1, threads: int = 0) -> "
                "list[tuple[list[str], list[float], list[bool]]]"),
        "For each distinct word: its letters, the entropy in bits before each, and where morphs begin.");

  m.def(
      "tokenizer_from_table",
      [](std::vector<std::string> segments, std::vector<std::int64_t> counts,
         const std::string& training_json) {
        return Tokenizer::from_table({std::move(segments), std::move(counts), training_json});
      },
      nb::arg("segments"), nb::arg("counts"), nb::arg("training_json"),
      "A vocabulary with counts and training fingerprint, ready to save.");
}

}  // namespace andrea
