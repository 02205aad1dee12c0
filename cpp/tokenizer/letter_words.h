// The words Harris looks at: distinct lower-case letter types as sequences of letter numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/word_counter.h"

namespace andrea {

/// Distinct words. A letter is a base character with its combining marks, numbered from 0; so no boundary can
/// fall between them.
struct LetterWords {
  std::vector<std::uint32_t> letters;      ///< all words after each other
  std::vector<std::size_t> begin;          ///< word w is letters[begin[w], begin[w + 1])
  std::vector<std::u32string> alphabet;    ///< code points of each letter
  std::vector<std::int32_t> word_of_type;  ///< for each type its word, or -1 if it is none

  std::size_t size() const { return begin.size() - 1; }
  std::size_t length(std::size_t word) const { return begin[word + 1] - begin[word]; }
};

/// Collects the words of all types that are letters with or without a space before them. Types whose lower
/// case has another number of letters stay out.
LetterWords collect_letter_words(const std::vector<CountedType>& types);

}  // namespace andrea
