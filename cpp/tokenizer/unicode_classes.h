// What kind of character a code point is, by the tables of one Unicode version. Training asks; encoding does
// not.
#pragma once

#include <cstdint>

namespace andrea {

/// The classes that segments are made of. A mark belongs to the letter before it.
enum class CharClass : std::uint8_t { kSign, kLetter, kMark, kDigit, kWhiteSpace };

/// The class of a code point. Everything that is no letter, mark, number or white space is a sign.
CharClass char_class(std::uint32_t code_point);

/// The lower case of a code point where that is one code point, else the code point itself.
std::uint32_t lower_case(std::uint32_t code_point);

/// The version of the tables, such as "14.0.0".
const char* unicode_version();

}  // namespace andrea
