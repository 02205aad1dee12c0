// Encoding against a longest match that cannot be wrong; decoding, streaming, batches, the file.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/errors.h"
#include "tokenizer/encode_batch.h"
#include "tokenizer/tokenizer.h"

namespace andrea {
namespace {

using Ids = std::vector<std::int32_t>;

Ids slow_encode(const std::vector<std::string>& segments, const std::string& text) {
  std::map<std::string, std::int32_t> id;
  for (std::size_t i = 0; i < segments.size(); ++i) id[segments[i]] = static_cast<std::int32_t>(257 + i);
  Ids ids;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = std::min<std::size_t>(kMaxSegmentBytes, text.size() - at);
    while (length > 1 && id.count(text.substr(at, length)) == 0) --length;
    ids.push_back(length > 1 ? id[text.substr(at, length)] : static_cast<unsigned char>(text[at]));
    at += length;
  }
  return ids;
}

std::string random_text(std::mt19937& rng, std::size_t length, const std::string& letters) {
  std::string text;
  while (text.size() < length) text += letters[rng() % letters.size()];
  return text;
}

// Random vocabularies over few letters share many prefixes; lengths around all inner limits.
TEST(Encode, EqualsSlowLongestMatch) {
  std::mt19937 rng(1);
  for (int round = 0; round < 60; ++round) {
    const std::string letters = round % 3 == 0   ? "ab"
                                : round % 3 == 1 ? "abc de"
                                                 : std::string("\0az\x7f", 4);
    std::map<std::string, int> distinct;
    for (int i = 0; i < 40; ++i)
      distinct[random_text(rng, 2 + rng() % (round % 2 == 0 ? 4 : 20), letters)] = 1;
    std::vector<std::string> segments;
    for (const auto& [text, one] : distinct) segments.push_back(text);
    const Tokenizer tokenizer = Tokenizer::from_segments(segments);
    for (const std::size_t length : {0, 1, 2, 3, 5, 19, 20, 21, 22, 23, 64, 300}) {
      const std::string text = random_text(rng, length, letters);
      const Ids ids = tokenizer.encode(text);
      ASSERT_EQ(ids, slow_encode(segments, text));
      ASSERT_EQ(tokenizer.decode(ids.data(), ids.size()), text);
    }
  }
}

// More ids than the encoder's inner buffer holds.
TEST(Encode, LongTextOfSingleBytes) {
  const Tokenizer tokenizer = Tokenizer::from_segments({"ab"});
  const std::string text(10'000, 'a');
  EXPECT_EQ(tokenizer.encode(text), Ids(10'000, 'a'));
}

TEST(Encode, EveryByteWithoutSegments) {
  const Tokenizer tokenizer = Tokenizer::from_segments({});
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  const Ids ids = tokenizer.encode(text);
  for (int byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[static_cast<std::size_t>(byte)], byte);
}

TEST(Encode, SegmentsUpToTheLongest) {
  const std::string longest(kMaxSegmentBytes, 'x');
  const Tokenizer tokenizer = Tokenizer::from_segments({longest, "xx"});
  EXPECT_EQ(tokenizer.encode(longest + "xxx"), (Ids{257, 258, 'x'}));
  EXPECT_EQ(tokenizer.encode(longest.substr(1)), slow_encode({longest, "xx"}, longest.substr(1)));
}

// Enough nodes that the trie must open block after block.
TEST(Encode, ManySegments) {
  std::mt19937 rng(2);
  std::map<std::string, int> distinct;
  while (distinct.size() < 30'000)
    distinct[random_text(rng, 2 + rng() % 5, "abcdefghijklmnopqrstuvwxyz ")] = 1;
  std::vector<std::string> segments;
  for (const auto& [text, one] : distinct) segments.push_back(text);
  const Tokenizer tokenizer = Tokenizer::from_segments(segments);
  for (std::size_t i = 0; i < segments.size(); ++i)
    ASSERT_EQ(tokenizer.encode(segments[i]), Ids{static_cast<std::int32_t>(257 + i)});
}

TEST(Decode, BosIsNothingAndStrangersAreRefused) {
  const Tokenizer tokenizer =
      Tokenizer::from_segments({"a rather long segment, 40 bytes or more of it", "hi"});
  const Ids ids{256, 258, 257, 256, '!'};
  EXPECT_EQ(tokenizer.decode(ids.data(), ids.size()), "hia rather long segment, 40 bytes or more of it!");
  for (const std::int32_t wrong : {259, -1, 1 << 30}) {
    const Ids bad{65, wrong};
    try {
      tokenizer.decode(bad.data(), bad.size());
      FAIL() << wrong;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("position 1"), std::string::npos);
    }
  }
}

TEST(Stream, HoldsBackHalfACharacterOnly) {
  const Tokenizer tokenizer = Tokenizer::from_segments({"ab"});
  StreamDecoder decoder(tokenizer);
  const auto push = [&decoder](int byte) {
    const std::int32_t id = byte;
    return decoder.push(&id, 1);
  };
  EXPECT_EQ(push(257), "ab");
  EXPECT_EQ(push(0xF0), "");
  EXPECT_EQ(push(0x9F), "");
  EXPECT_EQ(push(0x98), "");
  EXPECT_EQ(push(0x80), "\xF0\x9F\x98\x80");
  EXPECT_EQ(push(0xE0), "");
  EXPECT_EQ(push(0x80), "\xE0\x80");  // overlong: can become no character
  EXPECT_EQ(push(0xC3), "");
  EXPECT_EQ(push('x'), "\xC3x");
  EXPECT_EQ(push(0xFF), "\xFF");
  EXPECT_EQ(push(0xC3), "");
  EXPECT_EQ(decoder.finish(), "\xC3");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(Batch, DoesNotDependOnThreads) {
  const Tokenizer tokenizer = Tokenizer::from_segments({"ab", "abc", " a"});
  std::mt19937 rng(3);
  std::vector<std::string> texts;
  for (int i = 0; i < 400; ++i) texts.push_back(random_text(rng, rng() % 5000, "abc "));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  const EncodedBatch one = encode_batch(tokenizer, views, 1);
  ASSERT_EQ(one.offsets.size(), texts.size() + 1);
  for (std::size_t i = 0; i < texts.size(); ++i)
    ASSERT_EQ(Ids(one.ids.begin() + one.offsets[i], one.ids.begin() + one.offsets[i + 1]),
              tokenizer.encode(texts[i]));
  const EncodedBatch four = encode_batch(tokenizer, views, 4);
  EXPECT_EQ(one.ids, four.ids);
  EXPECT_EQ(one.offsets, four.offsets);
}

TEST(File, RoundTripAndRefusals) {
  char directory[] = "/tmp/andrea_tokenizer_XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  const std::string path = std::string(directory) + "/t.json";
  const Tokenizer tokenizer = Tokenizer::from_table({{"\"\\\n", "\xC3\xA9", " x"}, {3, 2, 1}, R"({"a":1})"});
  tokenizer.save(path);
  const Tokenizer again = Tokenizer::load(path);
  EXPECT_EQ(again.segments(), tokenizer.segments());
  EXPECT_EQ(again.table().counts, tokenizer.table().counts);
  EXPECT_EQ(again.hash(), tokenizer.hash());
  std::ofstream(path)
      << R"({"format":"andrea-harris-segments","version":1,"N":1,"hash":"0","training":{},"segments":[["ab",1]]})";
  EXPECT_THROW(Tokenizer::load(path), DataError);
  unlink(path.c_str());
  EXPECT_THROW(Tokenizer::load(path), IoError);
  rmdir(directory);
  EXPECT_THROW(tokenizer.save(path), IoError);
  EXPECT_THROW(Tokenizer::from_segments({"ab", "ab"}), DataError);
  EXPECT_THROW(Tokenizer::from_segments({"a"}), DataError);
  EXPECT_THROW(Tokenizer::from_segments({"\xED\xA0\x80"}), DataError);
  EXPECT_THROW(Tokenizer::from_segments({"\xC0\x80"}), DataError);
}

}  // namespace
}  // namespace andrea
