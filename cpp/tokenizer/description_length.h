// Decides between the boundaries that Harris proposes: the shortest description of words and lexicon wins.
//
// After Creutz and Lagus, Morfessor Baseline (2002, 2007): a word is a sequence of morphs, a morph costs its
// code length each time it is used, and its spelling once. Each word counts once.
#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/letter_words.h"

namespace andrea {

/// How words are split for reference.
struct DescriptionSettings {
  double gate_bits = 2.0;      ///< places with less entropy (both directions) are no candidates
  double corpus_weight = 1.8;  ///< weight of the words' code against the lexicon's
  double least_gain = 0.003;   ///< stop when a round shortens the description by less than this share
  int most_rounds = 8;
  std::uint64_t seed = 1;  ///< order in which words are visited
};

/// For each place in words.letters whether a morph begins there (1), as boundary_entropy indexes places.
std::vector<std::uint8_t> split_words(const LetterWords& words, const std::vector<float>& entropy,
                                      const DescriptionSettings& settings);

}  // namespace andrea
