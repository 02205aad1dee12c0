// harris_segments.json: the file of a vocabulary.
//
//   {"format": "andrea-harris-segments", "version": 1, "N": 2, "hash": "0123456789abcdef",
//    "training": {...}, "segments": [["ing", 1042], [" the", 977]]}
//
// The order is the order of ids, from 257. `hash` is XXH64 over (u32 length, bytes) of each segment.
// `training` says what the vocabulary was learned from and with which settings; nothing depends on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace andrea {

constexpr int kSegmentsFileVersion = 1;
constexpr std::size_t kMaxSegmentBytes = 255;   ///< bounds the work a byte can cost the encoder
constexpr std::size_t kMaxSegments = 1U << 22;  ///< ids and trie slots have 24 bits

/// What the file holds.
struct SegmentTable {
  std::vector<std::string> segments;  ///< in id order
  std::vector<std::int64_t> counts;   ///< uses in the training text, as many as segments
  std::string training_json = "{}";   ///< one JSON object
};

/// Reads and checks the file: version, N, hash, spelling and uniqueness of every segment.
/// IoError if it cannot be read; DataError says what is wrong and where.
SegmentTable read_segments_file(const std::string& path);

/// Writes the file: temporary file beside it, fsync, rename, fsync of the directory. IoError on failure.
void write_segments_file(const std::string& path, const SegmentTable& table);

/// DataError unless every segment is valid UTF-8 of 2..kMaxSegmentBytes bytes and unlike all others.
/// `where` begins the message (a file name).
void check_segments(const std::vector<std::string>& segments, const std::string& where);

/// XXH64 over (u32 length, bytes) of each segment.
std::uint64_t hash_segments(const std::vector<std::string>& segments);

}  // namespace andrea
