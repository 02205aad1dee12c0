// XXH64, a fast 64-bit checksum, from its published specification
// (github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md). It guards files against damage, not against an
// enemy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace andrea {

/// Streaming XXH64: update() any number of times, digest() at any moment.
class Xxh64 {
 public:
  explicit Xxh64(std::uint64_t seed = 0);
  void update(const void* data, std::size_t bytes);
  std::uint64_t digest() const;

 private:
  std::array<std::uint64_t, 4> lanes_;
  std::array<unsigned char, 32> tail_{};
  std::size_t tail_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::uint64_t seed_;
};

/// XXH64 of one buffer.
std::uint64_t xxh64(const void* data, std::size_t bytes, std::uint64_t seed = 0);

/// Sixteen lower-case hexadecimal digits, as hashes are written in JSON.
std::string hash_hex(std::uint64_t hash);

}  // namespace andrea
