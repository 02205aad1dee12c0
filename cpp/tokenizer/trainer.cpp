#include "tokenizer/trainer.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/harris.h"
#include "tokenizer/letter_words.h"

namespace andrea {

void TypeTable::add(const std::vector<CountedType>& types, double weight) {
  for (const CountedType& type : types) {
    const auto units =
        std::llround(static_cast<double>(type.count) * weight * static_cast<double>(kCountUnits));
    if (units > 0) map_.add(type.text, units);
  }
}

std::vector<CountedType> TypeTable::take(std::size_t most) {
  std::vector<CountedType> types;
  types.reserve(map_.size());
  map_.for_each(
      [&types](std::string_view text, std::int64_t count) { types.push_back({std::string(text), count}); });
  std::sort(types.begin(), types.end(), [](const CountedType& a, const CountedType& b) {
    return a.count != b.count ? a.count > b.count : a.text < b.text;
  });
  if (types.size() > most) types.resize(most);
  return types;
}

namespace {

// Reference boundaries at the places of the candidate table: letters of a word become characters of a type.
SelectionInput reference_boundaries(const std::vector<CountedType>& types, const CandidateTable& table,
                                    const LetterWords& words, const std::vector<std::uint8_t>& morph_begins) {
  SelectionInput input;
  input.types = &types;
  input.boundary.assign(table.type_begin(types.size()), 0);
  input.is_word.assign(types.size(), 0);
  for (std::size_t t = 0; t < types.size(); ++t) {
    if (words.word_of_type[t] < 0) continue;
    const auto word = static_cast<std::size_t>(words.word_of_type[t]);
    input.is_word[t] = 1;
    std::size_t letter = 0;
    const std::size_t begin = table.type_begin(t) + (types[t].text[0] == ' ' ? 1 : 0);
    for (std::size_t place = begin; place < table.type_begin(t + 1); ++place) {
      if (place > begin && table.is_mark(place)) continue;
      input.boundary[place] = morph_begins[words.begin[word] + letter];
      ++letter;
    }
  }
  return input;
}

}  // namespace

TrainingResult train_segments(const std::vector<CountedType>& types, const TrainingSettings& settings,
                              const TrainingProgress& progress) {
  const auto say = [&progress](const char* stage, int done, int all) {
    if (progress) progress(stage, done, all);
  };
  TrainingResult result;
  result.types = types.size();
  say("morphemes", 0, 1);
  const LetterWords words = collect_letter_words(types);
  result.words = words.size();
  const std::vector<float> entropy = boundary_entropy(words, settings.selection.threads);
  const std::vector<std::uint8_t> begins = split_words(words, entropy, settings.description);
  say("morphemes", 1, 1);
  // Small texts get their segments from rarer substrings; below two occurrences nothing is learned.
  for (std::int64_t least = settings.least_count;; least = 2) {
    say("candidates", 0, 1);
    const CandidateTable table(types, {settings.most_letters, least * kCountUnits});
    result.candidates = table.nodes();
    say("candidates", 1, 1);
    const SelectionInput input = reference_boundaries(types, table, words, begins);
    result.selected = select_segments(input, table, settings.selection,
                                      [&say](int done, int all) { say("selection", done, all); });
    if (result.selected.segments.size() >= settings.selection.segments || least <= 2) break;
  }
  for (std::int64_t& count : result.selected.counts) count = (count + kCountUnits / 2) / kCountUnits;
  result.selected.ids = (result.selected.ids + kCountUnits / 2) / kCountUnits;
  return result;
}

}  // namespace andrea
