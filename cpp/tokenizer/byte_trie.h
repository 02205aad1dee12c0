// Longest match over bytes: a double array of 8-byte slots, entered through a table of the first two bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace andrea {

/// The longest known string at a position: its id and its length in bytes.
struct TrieMatch {
  std::int32_t id;
  std::size_t length;
};

/// All 256 single bytes (ids 0..255) and any number of longer strings.
class ByteTrie {
 public:
  ByteTrie() = default;

  /// strings[i], distinct and of 2..255 bytes, gets the id first_id + i.
  ByteTrie(const std::vector<std::string>& strings, std::int32_t first_id);

  /// Longest match at the beginning of `bytes`, which is not empty.
  TrieMatch longest(std::string_view bytes) const;

  /// Encodes bytes[begin, end) greedily into `out` until `capacity` ids are written or the bytes are used up.
  /// Moves `begin` behind the last byte used and returns the number of ids. Takes at most (longest string +
  /// 1) steps an id, whatever the bytes are.
  std::size_t encode(const unsigned char*& begin, const unsigned char* end, std::int32_t* out,
                     std::size_t capacity) const;

  /// Bytes that the tables take.
  std::size_t table_bytes() const { return 8 * (slots_.size() + pairs_.size()); }

 private:
  // A slot: label in bits 0..15 (kFree: no node here), id in bits 16..39 (kNoId: none), base in bits 40..63.
  // The child of a node by byte c is slot base ^ c if its label is c; no two nodes share a base.
  static constexpr std::uint64_t kFree = 0xFFFF;
  static constexpr std::uint64_t kNoId = 0xFFFFFF;

  static std::uint64_t pack(std::uint64_t base, std::uint64_t id, std::uint64_t label) {
    return base << 40 | id << 16 | label;
  }

  std::vector<std::uint64_t> slots_;
  // By the first two bytes (first byte low): best id so far, its length in the label's place, base to go on.
  std::vector<std::uint64_t> pairs_;
  std::size_t longest_string_ = 1;

  friend class ByteTrieBuilder;
};

}  // namespace andrea
