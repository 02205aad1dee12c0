// Harris entropies by hand, the description length on a made-up language, and selection against brute force.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tokenizer/harris.h"
#include "tokenizer/letter_words.h"
#include "tokenizer/trainer.h"

namespace andrea {
namespace {

std::vector<CountedType> types_of(const std::vector<std::string>& texts) {
  std::vector<CountedType> types;
  for (const std::string& text : texts) types.push_back({text, 10 * kCountUnits});
  return types;
}

// Prefix "a" goes on with b, c or the end (log2 3 bits); suffix "b" is reached from a or the beginning (1
// bit).
TEST(Harris, EntropiesByHand) {
  const LetterWords words = collect_letter_words(types_of({"a", "ab", "AC", "b"}));
  ASSERT_EQ(words.size(), 4U);
  const std::vector<float> entropy = boundary_entropy(words, 2);
  const std::size_t ab = words.begin[1];
  EXPECT_EQ(entropy[ab], 0.0F);
  EXPECT_NEAR(entropy[ab + 1], std::log2(3.0) + 1.0, 1e-6);
  EXPECT_NEAR(entropy[words.begin[2] + 1], std::log2(3.0), 1e-6);  // "c" is reached from a alone
}

TEST(Harris, MarksBelongToTheirLetter) {
  const LetterWords words = collect_letter_words(types_of({" e\u0301a", "x1", "--", " É"}));
  EXPECT_EQ(words.size(), 2U);
  EXPECT_EQ(words.length(0), 2U);
  EXPECT_EQ(words.word_of_type, (std::vector<std::int32_t>{0, -1, -1, 1}));
}

TEST(DescriptionLength, SplitsStemsFromEndings) {
  std::vector<std::string> texts;
  for (const char* stem :
       {"walk", "jump", "turn", "look", "climb", "print", "count", "build", "help", "paint"})
    for (const char* ending : {"", "s", "ed", "ing", "er", "ers", "able"})
      texts.push_back(std::string(stem) + ending);
  DescriptionSettings settings;
  settings.corpus_weight = 1.0;
  for (const WordAnalysis& word : analyse(types_of(texts), settings, 1)) {
    std::string split;
    for (std::size_t i = 0; i < word.letters.size(); ++i)
      split += (word.begins[i] ? "|" : "") + word.letters[i];
    if (split.find("ing") != std::string::npos) {
      EXPECT_EQ(split.find("|ing"), split.size() - 4) << split;
    }
  }
}

TrainingSettings small(std::size_t n, int threads) {
  TrainingSettings settings;
  settings.selection.segments = n;
  settings.selection.threads = threads;
  return settings;
}

// Ids that the types cost under a vocabulary, in occurrences.
std::int64_t ids_of(const std::vector<CountedType>& types, const std::vector<std::string>& segments) {
  const Tokenizer tokenizer = Tokenizer::from_segments(segments);
  std::int64_t ids = 0;
  for (const CountedType& type : types)
    ids += type.count / kCountUnits * static_cast<std::int64_t>(tokenizer.encode(type.text).size());
  return ids;
}

TEST(Selection, CountsWhatTheEncoderDoes) {
  std::vector<CountedType> types;
  for (const auto& [text, count] : std::vector<std::pair<std::string, int>>{{" the", 900},
                                                                            {" then", 200},
                                                                            {" other", 150},
                                                                            {" e\u0301t\u0301", 60},
                                                                            {"==", 40},
                                                                            {" 2026", 30},
                                                                            {"    ", 80},
                                                                            {"\u4eba\u4eba", 25},
                                                                            {" thing", 90},
                                                                            {" things", 40},
                                                                            {" nothing", 30}})
    types.push_back({text, count * kCountUnits});
  for (const std::size_t n : {1U, 3U, 7U, 10U}) {
    const TrainingResult result = train_segments(types, small(n, 1), {});
    ASSERT_EQ(result.selected.segments.size(), n);
    EXPECT_EQ(result.selected.ids, ids_of(types, result.selected.segments));
    EXPECT_EQ(train_segments(types, small(n, 3), {}).selected.segments, result.selected.segments);
  }
}

// With length alone in view and room for two, the best pair of all substrings is found.
TEST(Selection, BestPairByBruteForce) {
  const std::vector<CountedType> types{
      {"banana", 50 * kCountUnits}, {"bandana", 30 * kCountUnits}, {"ana", 20 * kCountUnits}};
  std::set<std::string> substrings;
  for (const CountedType& type : types)
    for (std::size_t i = 0; i < type.text.size(); ++i)
      for (std::size_t n = 2; i + n <= type.text.size(); ++n) substrings.insert(type.text.substr(i, n));
  std::int64_t best = 1 << 30;
  for (const std::string& a : substrings)
    for (const std::string& b : substrings)
      if (a < b) best = std::min(best, ids_of(types, {a, b}));
  TrainingSettings settings = small(2, 1);
  settings.selection.boundary_weight = 0;
  EXPECT_EQ(train_segments(types, settings, {}).selected.ids, best);
}

TEST(Selection, SaysWhenNothingMorePays) {
  const TrainingResult result = train_segments(types_of({" ab"}), small(50, 1), {});
  EXPECT_EQ(result.selected.segments, std::vector<std::string>{" ab"});
  EXPECT_TRUE(train_segments({}, small(5, 1), {}).selected.segments.empty());
}

}  // namespace
}  // namespace andrea
