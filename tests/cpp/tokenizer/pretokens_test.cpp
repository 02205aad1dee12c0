// The three-class rule, the class tables, and counting.
#include "tokenizer/pretokens.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "tokenizer/word_counter.h"

namespace andrea {
namespace {

std::vector<std::string> pretokens_of(const std::string& text) {
  std::vector<std::string> found;
  for_each_pretoken(text, [&found](std::string_view piece) { found.emplace_back(piece); });
  return found;
}

using Pieces = std::vector<std::string>;

TEST(Pretokens, ThreeClassesWithOneSpace) {
  EXPECT_EQ(pretokens_of("The cat's 42nd"), (Pieces{"The", " cat", "'", "s", " 42", "nd"}));
  EXPECT_EQ(pretokens_of("x += y"), (Pieces{"x", " +=", " y"}));
  EXPECT_EQ(pretokens_of("a\u0301b"), (Pieces{"a\u0301b"}));  // a mark is part of its word
  EXPECT_EQ(pretokens_of("人人 生"), (Pieces{"人人", " 生"}));
}

TEST(Pretokens, Runs) {
  EXPECT_EQ(pretokens_of("a\nb"), (Pieces{"a", "b"}));
  EXPECT_EQ(pretokens_of("a\n\n\nb"), (Pieces{"a", "\n\n\n", "b"}));
  EXPECT_EQ(pretokens_of("a\n    b"), (Pieces{"a", "\n    ", "b"}));
  EXPECT_EQ(pretokens_of("a\r\n"), (Pieces{"a", "\r\n"}));
  EXPECT_EQ(pretokens_of("   x"), (Pieces{"   ", "x"}));
  EXPECT_EQ(pretokens_of(std::string(33, ' ') + "x"), (Pieces{std::string(32, ' '), " x"}));
  EXPECT_EQ(pretokens_of(std::string(32, ' ') + "x"), (Pieces{std::string(32, ' '), "x"}));
  EXPECT_EQ(pretokens_of("\u3000x"), (Pieces{"\u3000", "x"}));
  EXPECT_EQ(pretokens_of(" "), Pieces{});
}

TEST(Pretokens, WhatIsNoTextParts) {
  EXPECT_EQ(pretokens_of("ab\xFFvc"), (Pieces{"ab", "vc"}));
  EXPECT_EQ(pretokens_of(std::string("ab\0cd", 5)), (Pieces{"ab", "cd"}));
  EXPECT_EQ(pretokens_of(" \xC3"), Pieces{});
  EXPECT_EQ(pretokens_of(std::string(70, 'x')),
            (Pieces{std::string(32, 'x'), std::string(32, 'x'), std::string(6, 'x')}));
}

TEST(Classes, KnownCharacters) {
  EXPECT_EQ(char_class('a'), CharClass::kLetter);
  EXPECT_EQ(char_class('_'), CharClass::kSign);
  EXPECT_EQ(char_class(0x0663), CharClass::kDigit);  // Arabic-Indic three
  EXPECT_EQ(char_class(0x0301), CharClass::kMark);
  EXPECT_EQ(char_class(0x2028), CharClass::kWhiteSpace);
  EXPECT_EQ(char_class(0x4E00), CharClass::kLetter);
  EXPECT_EQ(char_class(0x10FFFF), CharClass::kSign);
  EXPECT_EQ(lower_case('Q'), static_cast<std::uint32_t>('q'));
  EXPECT_EQ(lower_case(0x0416), 0x0436U);  // Cyrillic Zhe
  EXPECT_EQ(lower_case(0x0100), 0x0101U);
  EXPECT_EQ(lower_case(0x0101), 0x0101U);
  EXPECT_EQ(lower_case(0x4E00), 0x4E00U);
}

std::map<std::string, std::int64_t> counts_of(WordCounter& counter) {
  std::map<std::string, std::int64_t> counts;
  for (const CountedType& type : counter.types()) counts[type.text] = type.count;
  return counts;
}

// Blocks of any size, on any number of threads, count what one pass over the text counts.
TEST(Counter, BlocksAndThreadsCountAlike) {
  std::mt19937 rng(4);
  std::string text;
  const std::vector<std::string> words{"alpha", "beta", "x1", "  ", "\n\n", "--", "\u00e9t\u00e9", "Zeta"};
  while (text.size() < 3'000'000) text += words[rng() % words.size()] + (rng() % 3 == 0 ? "\n" : " ");
  std::map<std::string, std::int64_t> expected;
  for_each_pretoken(text, [&expected](std::string_view piece) { ++expected[std::string(piece)]; });
  for (const int threads : {1, 3}) {
    for (const std::size_t block : {std::size_t{700'001}, text.size()}) {
      WordCounter counter(threads);
      std::string carry;
      for (std::size_t at = 0; at < text.size(); at += block) {
        carry += text.substr(at, block);
        carry.erase(0, counter.add_block(carry, false));
      }
      EXPECT_EQ(counter.add_block(carry, true), carry.size());
      EXPECT_EQ(counter.bytes(), static_cast<std::int64_t>(text.size()));
      EXPECT_EQ(counts_of(counter), expected);
    }
  }
}

TEST(Counter, ForgetsTheRarestWhenThereAreTooMany) {
  WordCounter counter(1, 10);
  std::string text;
  for (int i = 0; i < 100; ++i) text += "w" + std::string(static_cast<std::size_t>(i % 20), 'x') + "\n";
  for (int i = 0; i < 26; ++i) text += std::string("rare") + static_cast<char>('a' + i) + "\n";
  text += "often\noften\noften\noften\noften\noften\n";
  counter.add({text});
  const auto counts = counts_of(counter);
  EXPECT_EQ(counts, (std::map<std::string, std::int64_t>{{"often", 6}}));
}

}  // namespace
}  // namespace andrea
