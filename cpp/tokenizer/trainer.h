// Learns a vocabulary from counted pre-tokens: Harris, description length, selection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tokenizer/description_length.h"
#include "tokenizer/selection.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/word_counter.h"

namespace andrea {

/// One count in the file is this many units while training, so that fractional weights keep their meaning.
constexpr std::int64_t kCountUnits = 16;

/// What a cut inside a word is worth against one id of an average word, by the reference split; negative is
/// good.
struct CutSettings {
  double right = -0.85;         ///< where a reference morph begins
  double wrong = 0.22;          ///< elsewhere
  double capital_weight = 0.2;  ///< types with a capital are mostly names, whose inner form teaches little
};

/// All settings of learning; the defaults are those that docs/TOKENIZER.md measures.
struct TrainingSettings {
  SelectionSettings selection;
  DescriptionSettings description;
  CutSettings cut;
  std::size_t most_types = 500'000;  ///< the most frequent pre-tokens that take part
  std::size_t most_letters = 16;     ///< longest segment
  std::int64_t least_count = 5;      ///< occurrences below which a substring is no candidate
};

/// Adds the types of several sources, each count times its source's weight.
class TypeTable {
 public:
  /// `weight` > 0 multiplies the counts.
  void add(const std::vector<CountedType>& types, double weight);
  /// The most frequent `most` types in units of 1 / kCountUnits, sorted by falling count, then by bytes.
  std::vector<CountedType> take(std::size_t most);

 private:
  CountMap map_;
};

/// What training found besides the segments.
struct TrainingResult {
  Selected selected;           ///< counts in whole occurrences, rounded
  std::size_t types = 0;       ///< pre-tokens that took part
  std::size_t words = 0;       ///< distinct lower-case words that Harris saw
  std::size_t candidates = 0;  ///< substrings frequent enough
};

/// Called with the name of the stage, steps done and all steps of the stage.
using TrainingProgress = std::function<void(const char*, int, int)>;

/// Learns up to settings.selection.segments segments from types in units of 1 / kCountUnits. Fewer come back
/// when even substrings seen twice can no longer improve the objective: the text is saturated.
TrainingResult train_segments(const std::vector<CountedType>& types, const TrainingSettings& settings,
                              const TrainingProgress& progress);

/// One word as Harris and the description length see it; vectors have one entry a letter.
struct WordAnalysis {
  std::vector<std::string> letters;
  std::vector<float> entropy;  ///< bits before the letter, both directions; 0 at the beginning
  std::vector<bool> begins;    ///< a morph begins here
};

/// Entropies and reference boundaries of all distinct lower-case words among the types.
std::vector<WordAnalysis> analyse(const std::vector<CountedType>& types, const DescriptionSettings& settings,
                                  int threads);

}  // namespace andrea
