#include "tokenizer/letter_words.h"

#include <string>
#include <unordered_map>

#include "tokenizer/pretokens.h"
#include "tokenizer/unicode_classes.h"

namespace andrea {
namespace {

// Splits a type into lower-case letters, each with its marks; false if it is no word.
bool split_letters(std::string_view text, std::vector<std::u32string>& letters) {
  letters.clear();
  if (text[0] == ' ') text.remove_prefix(1);
  while (!text.empty()) {
    const pretokens::Step step = pretokens::step_at(text, 0);
    if (step.kind != pretokens::kLetters) return false;
    const auto c = static_cast<char32_t>(lower_case(step.code_point));
    if (char_class(step.code_point) == CharClass::kMark && !letters.empty())
      letters.back() += c;
    else
      letters.emplace_back(1, c);
    text.remove_prefix(step.length);
  }
  return !letters.empty();
}

}  // namespace

LetterWords collect_letter_words(const std::vector<CountedType>& types) {
  LetterWords words;
  words.begin.push_back(0);
  words.word_of_type.assign(types.size(), -1);
  std::unordered_map<std::u32string, std::uint32_t> letter_number;
  std::unordered_map<std::u32string, std::int32_t> word_number;
  std::vector<std::u32string> letters;
  for (std::size_t t = 0; t < types.size(); ++t) {
    if (!split_letters(types[t].text, letters)) continue;
    std::u32string numbers;
    for (const std::u32string& letter : letters) {
      const auto next = static_cast<std::uint32_t>(letter_number.size());
      const auto [number, is_new_letter] = letter_number.emplace(letter, next);
      if (is_new_letter) words.alphabet.push_back(letter);
      numbers += static_cast<char32_t>(number->second);
    }
    const auto [found, is_new] = word_number.emplace(numbers, static_cast<std::int32_t>(words.size()));
    if (is_new) {
      for (const char32_t number : numbers) words.letters.push_back(static_cast<std::uint32_t>(number));
      words.begin.push_back(words.letters.size());
    }
    words.word_of_type[t] = found->second;
  }
  return words;
}

}  // namespace andrea
