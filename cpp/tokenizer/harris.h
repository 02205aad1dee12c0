// Harris (1955): how freely does a word go on after these letters? Where freely, a morpheme may end.
#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/letter_words.h"

namespace andrea {

/// For each place between letters (index as in words.letters, the place before that letter; 0 at a word's
/// beginning) the entropy in bits of the next letter after the prefix + that of the letter before the suffix.
/// Every word counts once, and its end is a letter too. The result does not depend on `threads`.
std::vector<float> boundary_entropy(const LetterWords& words, int threads);

}  // namespace andrea
