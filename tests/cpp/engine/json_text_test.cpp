#include "engine/files/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/run/history.h"
#include "engine/scratch_directory.h"

namespace andrea {
namespace {

std::vector<JsonFault> faults_of(const std::string& text) {
  std::vector<JsonFault> faults;
  parse_json(text, &faults);
  return faults;
}

std::string canonical(const std::string& text) {
  std::vector<JsonFault> faults;
  const Json value = parse_json(text, &faults);
  EXPECT_TRUE(faults.empty()) << describe(faults.front());
  return canonical_json(value);
}

TEST(JsonText, CanonicalFormIsSortedAndCompact) {
  EXPECT_EQ(
      canonical(
          " { \"b\" : [ 1 , 2.0, -0.0 , 1e-5, 3e-4, 1e16, 123456.5 ], \"a\": {\"z\":null,\"y\":true} } "),
      "{\"a\":{\"y\":true,\"z\":null},\"b\":[1,2.0,-0.0,1e-05,0.0003,1e+16,123456.5]}");
  EXPECT_EQ(canonical("[[], {}, [[]], [{\"a\": [1, {\"b\": []}]}, 2]]"),
            "[[],{},[[]],[{\"a\":[1,{\"b\":[]}]},2]]");
  EXPECT_EQ(canonical("\"\\u00e9\\n\\u0001\\\"\\\\\""), "\"\xC3\xA9\\n\\u0001\\\"\\\\\"");
}

TEST(JsonText, IntegersOf64BitsAreExact) {
  EXPECT_EQ(canonical("[9223372036854775807, -9223372036854775808, 18446744073709551615, 9007199254740993]"),
            "[9223372036854775807,-9223372036854775808,18446744073709551615,9007199254740993]");
  const auto faults = faults_of("[18446744073709551616]");
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_HAS(faults[0].message, "18446744073709551616");
}

TEST(JsonText, SyntaxErrorsHaveLineAndColumn) {
  const auto faults = faults_of("{\n  \"a\": 1,\n  \"\xC3\xA9\": tru\n}");
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_TRUE(faults[0].fatal);
  EXPECT_EQ(faults[0].line, 3U);
  EXPECT_EQ(faults[0].column, 11U);  // the character after "tru" on that line
  EXPECT_HAS(describe(faults[0]), "line 3, column 11: syntax error");
}

TEST(JsonText, WhatIsNoStrictJsonIsRefused) {
  for (const char* text : {"", " ", "{", "[1,]", "{\"a\":1,}", "// x\n1", "/* x */ 1", "NaN", "Infinity",
                           "[1e999]", "{a:1}", "'a'", "1 2", "\"\xFF\"", "01", "\"a\nb\"", "\"\\ud800\""}) {
    const auto faults = faults_of(text);
    ASSERT_EQ(faults.size(), 1U) << text;
    EXPECT_TRUE(faults[0].fatal) << text;
  }
}

TEST(JsonText, AKeyThatStandsTwiceIsAFault) {
  const auto faults = faults_of("{\"a\": 1, \"b\": {\"a\": 2, \"c\": 3, \"c\": 4}, \"a\": 5}");
  ASSERT_EQ(faults.size(), 2U);
  EXPECT_HAS(faults[0].message, "\"c\"");
  EXPECT_HAS(faults[1].message, "\"a\"");
  EXPECT_FALSE(faults[0].fatal);
}

TEST(JsonText, DeepNestingIsRefused) {
  const auto faults = faults_of(std::string(100000, '['));
  ASSERT_EQ(faults.size(), 1U);
  EXPECT_HAS(faults[0].message, "nested deeper");
  EXPECT_TRUE(faults_of(std::string(100, '[') + std::string(100, ']')).empty());
}

TEST(Shortest, LooksLikePythonsRepr) {
  EXPECT_EQ(shortest(7.1F), "7.1");
  EXPECT_EQ(shortest(3.0F), "3.0");
  EXPECT_EQ(shortest(-0.0), "-0.0");
  EXPECT_EQ(shortest(0.0001), "0.0001");
  EXPECT_EQ(shortest(0.00001), "1e-05");
  EXPECT_EQ(shortest(1.5e-7), "1.5e-07");
  EXPECT_EQ(shortest(1e15), "1000000000000000.0");
  EXPECT_EQ(shortest(1e16), "1e+16");
  EXPECT_EQ(shortest(123456789.0), "123456789.0");
  EXPECT_EQ(shortest(0.1), "0.1");
  EXPECT_EQ(shortest(5e-324), "5e-324");
  EXPECT_EQ(shortest(std::numeric_limits<double>::quiet_NaN()), "null");
  EXPECT_EQ(shortest(std::numeric_limits<float>::infinity()), "null");
}

TEST(Shortest, ReadsBackAsTheSameBits) {
  std::uint32_t bits = 1;
  for (int i = 0; i < 200000; ++i) {
    bits = bits * 1664525U + 1013904223U;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    if (!std::isfinite(value)) continue;
    const std::string text = shortest(value);
    const float back = std::strtof(text.c_str(), nullptr);
    ASSERT_EQ(std::memcmp(&back, &value, sizeof value), 0) << text;
    ASSERT_TRUE(faults_of(text).empty()) << text;
  }
}

TEST(JsonQuote, InvalidUtf8BecomesTheReplacementCharacter) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(json_quote("a\xFFz"), "\"a" + bad + "z\"");
  EXPECT_EQ(json_quote("\xC0\x80"), "\"" + bad + bad + "\"");            // overlong
  EXPECT_EQ(json_quote("\xED\xA0\x80"), "\"" + bad + bad + bad + "\"");  // a surrogate
  EXPECT_EQ(json_quote("\xF4\x90\x80\x80"), "\"" + bad + bad + bad + bad + "\"");
  EXPECT_EQ(json_quote("\xE2\x82"), "\"" + bad + bad + "\"");
  EXPECT_EQ(json_quote("\xF0\x9F\x99\x82"), "\"\xF0\x9F\x99\x82\"");
  EXPECT_EQ(json_quote(std::string("\0\x1F\x7F", 3)), "\"\\u0000\\u001f\x7F\"");
}

}  // namespace
}  // namespace andrea
