// The Harris tokenizer at work: greedy longest match over raw bytes, and back.
//
// Ids: bytes are 0-255, BOS is 256, segments follow from 257 in the order of their file, so V = 256 + N + 1.
// At each position the longest segment that the bytes spell is taken; a byte that begins none stands for
// itself. Any byte string survives encode + decode, and no Unicode table is needed for either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_trie.h"
#include "tokenizer/segments_file.h"

namespace andrea {

/// An immutable vocabulary with its encoder and decoder; safe to share between threads.
class Tokenizer {
 public:
  static constexpr std::int32_t kBos = 256;           ///< begins a document; never comes out of text
  static constexpr std::int32_t kFirstSegment = 257;  ///< id of segments()[0]

  /// Reads harris_segments.json. IoError if it cannot be read, DataError if it is not what it claims to be.
  static Tokenizer load(const std::string& path);

  /// A vocabulary of these segments in id order: valid UTF-8, 2..kMaxSegmentBytes bytes, no two alike.
  /// DataError names the first one that breaks the rule.
  static Tokenizer from_segments(std::vector<std::string> segments);

  /// The same with counts and the training fingerprint kept, so that save() writes them again.
  static Tokenizer from_table(SegmentTable table);

  /// Writes harris_segments.json: temporary file, fsync, rename. IoError if the file system refuses.
  void save(const std::string& path) const;

  /// 256 bytes + BOS + N segments.
  std::int32_t vocab_size() const {
    return static_cast<std::int32_t>(table_.segments.size()) + kFirstSegment;
  }

  /// XXH64 over (u32 length, bytes) of each segment in id order: names this vocabulary in .btok and states.
  std::uint64_t hash() const { return hash_; }

  /// Segments in id order; segments()[i] has the id kFirstSegment + i.
  const std::vector<std::string>& segments() const { return table_.segments; }

  /// Segments, counts and training fingerprint as in the file.
  const SegmentTable& table() const { return table_; }

  /// Ids of these bytes, without BOS.
  std::vector<std::int32_t> encode(std::string_view bytes) const;

  /// Appends the ids of these bytes to `ids`, without BOS.
  void encode_append(std::string_view bytes, std::vector<std::int32_t>& ids) const;

  /// Bytes of n ids; BOS gives nothing. DataError names the first id out of range and its position.
  std::string decode(const std::int32_t* ids, std::size_t n) const;

  /// Bytes of one id; empty for BOS. DataError if the id is out of range.
  std::string_view token_bytes(std::int32_t id) const;

 private:
  explicit Tokenizer(SegmentTable table);

  // Decoding copies 16 bytes a token from `head_` and only then advances by the true length.
  static constexpr std::size_t kHeadBytes = 16;

  SegmentTable table_;
  std::uint64_t hash_ = 0;
  ByteTrie trie_;
  std::vector<char> head_;             // [V, kHeadBytes]
  std::vector<std::uint16_t> length_;  // [V]
  std::vector<std::uint32_t> offset_;  // [V] into spelling_
  std::string spelling_;               // all tokens after each other
};

/// Decodes a stream of ids piece by piece; a piece never ends inside a character.
class StreamDecoder {
 public:
  /// The tokenizer must outlive the decoder.
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  /// Takes ids and gives the bytes that are now complete. Bytes that may still grow into a character wait;
  /// bytes that no longer can are passed on as they are. DataError if an id is out of range.
  std::string push(const std::int32_t* ids, std::size_t n);

  /// Gives what waited, an unfinished character if the stream ended inside one.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  std::string waiting_;
};

}  // namespace andrea
