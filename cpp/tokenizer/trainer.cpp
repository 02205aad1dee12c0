#include "tokenizer/trainer.h"

#include <algorithm>
#include <cmath>

#include "tokenizer/harris.h"
#include "tokenizer/letter_words.h"
#include "tokenizer/pretokens.h"
#include "tokenizer/unicode_classes.h"
#include "tokenizer/utf8.h"

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

bool has_capital(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const pretokens::Step step = pretokens::step_at(text, at);
    if (lower_case(step.code_point) != step.code_point) return true;
    at += step.length;
  }
  return false;
}

// What a cut costs at the places of the candidate table: letters of a word become characters of a type.
SelectionInput cut_costs(const std::vector<CountedType>& types, const CandidateTable& table,
                         const LetterWords& words, const std::vector<std::uint8_t>& morph_begins,
                         const CutSettings& settings) {
  SelectionInput input;
  input.types = &types;
  input.cut.assign(table.type_begin(types.size()), 0);
  double occurrences = 0;
  double weights = 0;
  for (std::size_t t = 0; t < types.size(); ++t) {
    if (words.word_of_type[t] < 0) continue;
    const std::uint8_t* const begins =
        &morph_begins[words.begin[static_cast<std::size_t>(words.word_of_type[t])]];
    const double weight = has_capital(types[t].text) ? settings.capital_weight : 1.0;
    occurrences += static_cast<double>(types[t].count);
    weights += weight;
    const std::size_t first = table.type_begin(t) + (types[t].text[0] == ' ' ? 1 : 0);
    std::size_t letter = 0;
    for (std::size_t place = first + 1; place < table.type_begin(t + 1); ++place) {
      if (table.is_mark(place)) continue;
      const double u = begins[++letter] != 0 ? settings.right : settings.wrong;
      input.cut[place] = static_cast<std::int16_t>(std::lround(1000 * u * weight));
    }
  }
  input.mean_count = weights > 0 ? occurrences / weights : 0;
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
    const SelectionInput input = cut_costs(types, table, words, begins, settings.cut);
    result.selected = select_segments(input, table, settings.selection,
                                      [&say](int done, int all) { say("selection", done, all); });
    if (result.selected.segments.size() >= settings.selection.segments || least <= 2) break;
  }
  for (std::int64_t& count : result.selected.counts) count = (count + kCountUnits / 2) / kCountUnits;
  result.selected.ids = (result.selected.ids + kCountUnits / 2) / kCountUnits;
  return result;
}

std::vector<WordAnalysis> analyse(const std::vector<CountedType>& types, const DescriptionSettings& settings,
                                  int threads) {
  const LetterWords words = collect_letter_words(types);
  const std::vector<float> entropy = boundary_entropy(words, threads);
  const std::vector<std::uint8_t> begins = split_words(words, entropy, settings);
  std::vector<WordAnalysis> all(words.size());
  for (std::size_t w = 0; w < words.size(); ++w) {
    for (std::size_t i = words.begin[w]; i < words.begin[w + 1]; ++i) {
      std::string& letter = all[w].letters.emplace_back();
      for (const char32_t c : words.alphabet[words.letters[i]])
        append_utf8(static_cast<std::uint32_t>(c), letter);
      all[w].entropy.push_back(entropy[i]);
      all[w].begins.push_back(begins[i] != 0);
    }
  }
  return all;
}

}  // namespace andrea
