// Chooses N segments with the greedy encoder in the loop: ids saved, and boundaries respected.
//
// Objective, to be made small:
//   J = sum over types of count * ids  +  lambda * sum over types of sum over cuts of u(cut),
//   lambda = boundary_weight * (occurrences of words / number of words).
// u is negative where a morph begins and positive elsewhere; each type weighs the same there, however
// frequent. All costs are integers, so sums are exact and the result does not depend on the number of
// threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tokenizer/candidates.h"
#include "tokenizer/word_counter.h"

namespace andrea {

/// How segments are chosen.
struct SelectionSettings {
  std::size_t segments = 8192;
  double boundary_weight = 1.4;  ///< mu: 0 looks at length alone
  int rounds = 16;
  int threads = 0;
};

/// The types and what is known of them.
struct SelectionInput {
  const std::vector<CountedType>* types;
  /// For each place (see CandidateTable) u of a cut before it, in thousandths; 0 outside words and at their
  /// edges.
  std::vector<std::int16_t> cut;
  /// Occurrences per word (each weighted as in `cut`), in the unit of the types' counts.
  double mean_count = 0;
};

/// What was found, best segment first.
struct Selected {
  std::vector<std::string> segments;
  std::vector<std::int64_t> counts;  ///< uses by the greedy encoder, in the unit of the types' counts
  std::int64_t ids = 0;              ///< ids of all types, in the same unit
};

/// Fewer segments than asked come back if no further one improves the objective. `progress` is called with
/// (steps done, all steps).
Selected select_segments(const SelectionInput& input, const CandidateTable& table,
                         const SelectionSettings& settings, const std::function<void(int, int)>& progress);

}  // namespace andrea
