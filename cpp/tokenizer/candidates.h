// Every substring of the types that could become a segment, and where each one could match.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/word_counter.h"

namespace andrea {

/// What may be a segment.
struct CandidateSettings {
  std::size_t most_letters = 16;  ///< characters but white space, a letter and its marks being one
  std::int64_t least_count = 5;   ///< weighted occurrences, in the unit of the types' counts
};

/// Substrings are the nodes of a trie of characters. A node may be a segment (`allowed`) if it has two bytes
/// or more, does not begin with a combining mark unless it is a single character, ends before no combining
/// mark in at least `least_count` occurrences, and is not the lone space.
class CandidateTable {
 public:
  CandidateTable(const std::vector<CountedType>& types, const CandidateSettings& settings);

  std::size_t nodes() const { return parent_.size(); }
  bool allowed(std::uint32_t node) const { return allowed_[node] != 0; }
  std::string text(std::uint32_t node) const;

  /// Places are the characters of all types after each other; type t has the places [type_begin(t),
  /// type_begin(t+1)).
  std::size_t type_begin(std::size_t type) const { return type_begin_[type]; }
  /// Bytes of the character at a place.
  std::uint8_t char_bytes(std::size_t place) const { return char_bytes_[place]; }
  bool is_mark(std::size_t place) const { return mark_[place] != 0; }

  /// Nodes that match at a place: of 1, 2, ... matches(place) characters.
  const std::uint32_t* match(std::size_t place) const { return match_.data() + match_begin_[place]; }
  std::size_t matches(std::size_t place) const { return match_begin_[place + 1] - match_begin_[place]; }

 private:
  std::vector<std::uint32_t> parent_;  // kNone for nodes of one character
  std::vector<std::uint32_t> code_point_;
  std::vector<std::uint8_t> allowed_;
  std::vector<std::size_t> type_begin_;
  std::vector<std::uint8_t> char_bytes_;
  std::vector<std::uint8_t> mark_;
  std::vector<std::size_t> match_begin_;
  std::vector<std::uint32_t> match_;
};

}  // namespace andrea
