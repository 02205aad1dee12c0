// Cuts text into the pieces that no segment may cross: the three-class rule.
//
// A pre-token is an optional single space + characters of one class (letters and marks | digits | other
// signs), or a run of white space. Only training looks at pre-tokens; the encoder needs none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer/unicode_classes.h"
#include "tokenizer/utf8.h"

namespace andrea {

constexpr std::size_t kLongestPreToken = 32;  ///< longer ones are counted in pieces of so many characters

namespace pretokens {

/// Marks count as letters here; kInvalid is NUL, or a byte that is no UTF-8.
enum Kind : std::uint8_t { kSigns, kLetters, kDigits, kWhite, kInvalid };

inline Kind kind_of(std::uint32_t code_point) {
  static const std::array<Kind, 128> ascii = [] {
    std::array<Kind, 128> table{};
    for (std::uint32_t c = 0; c < 128; ++c) {
      const CharClass what = char_class(c);
      table[c] = what == CharClass::kLetter       ? kLetters
                 : what == CharClass::kDigit      ? kDigits
                 : what == CharClass::kWhiteSpace ? kWhite
                                                  : kSigns;
    }
    return table;
  }();
  if (code_point < 128) return ascii[code_point];
  switch (char_class(code_point)) {
    case CharClass::kLetter:
    case CharClass::kMark:
      return kLetters;
    case CharClass::kDigit:
      return kDigits;
    case CharClass::kWhiteSpace:
      return kWhite;
    default:
      return kSigns;
  }
}

struct Step {
  Kind kind;
  std::uint32_t code_point;
  std::size_t length;
};

inline Step step_at(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  // NUL is never part of a segment: a C string that ends there would seem to go on with it.
  if (lead == 0) return {kInvalid, lead, 1};
  if (lead < 128) return {kind_of(lead), lead, 1};
  const Utf8Char c = first_utf8_char(text.substr(at));
  if (c.length == 0) return {kInvalid, lead, 1};
  return {kind_of(c.code_point), c.code_point, c.length};
}

}  // namespace pretokens

/// Calls take(std::string_view) for each pre-token that a segment could shorten; single ASCII white space and
/// invalid bytes cost one id whatever the vocabulary and are passed over.
template <class Take>
void for_each_pretoken(std::string_view text, Take take) {
  using namespace pretokens;
  std::size_t at = 0;
  std::size_t start = 0;  // where the pre-token in hand begins: at `at`, or at the space before it
  while (at < text.size()) {
    Step step = step_at(text, at);
    if (step.kind == kInvalid) {
      at += step.length;
      start = at;
      continue;
    }
    if (step.kind == kWhite) {
      start = at;
      std::size_t run = 0;
      while (step.kind == kWhite) {
        at += step.length;
        if (++run == kLongestPreToken) {
          take(text.substr(start, at - start));
          start = at;
          run = 0;
        }
        if (at == text.size()) break;
        step = step_at(text, at);
      }
      // A lone space goes with what follows; of a longer run nothing is left for it.
      if (run == 1 && text[at - 1] == ' ') continue;
      if (at - start > 1) take(text.substr(start, at - start));
      start = at;
      continue;
    }
    const Kind kind = step.kind;
    std::size_t characters = 0;
    while (step.kind == kind) {
      at += step.length;
      if (++characters == kLongestPreToken) {
        take(text.substr(start, at - start));
        start = at;
        characters = 0;
      }
      if (at == text.size()) break;
      step = step_at(text, at);
    }
    if (at > start) take(text.substr(start, at - start));
    start = at;
  }
}

/// The last place in `text`, not its beginning, where a pre-token surely ends whatever follows; 0 if there is
/// none.
inline std::size_t last_pretoken_edge(std::string_view text) {
  for (std::size_t i = text.size(); i-- > 1;) {
    const bool white = text[i] == ' ' || text[i] == '\n';
    const auto before = static_cast<unsigned char>(text[i - 1]);
    if (white && before > ' ' && before < 127) return i;
  }
  return 0;
}

}  // namespace andrea
