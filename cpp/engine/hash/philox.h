// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
// key = (seed, stream); the counter is arithmetic of (step, row, ...), so there is no generator state to
// lose.
#pragma once

#include <array>
#include <cstdint>

namespace andrea {

/// Streams of randomness; init of tensor i uses kInitTensor + i.
enum PhiloxStream : std::uint32_t {
  kRows = 1,
  kPermutations = 2,
  kSampling = 3,
  kCurriculum = 4,
  kInitTensor = 256,
};

class Philox {
 public:
  Philox(std::uint32_t seed, std::uint32_t stream) : key_{seed, stream} {}

  /// The four words of one counter.
  std::array<std::uint32_t, 4> operator()(std::array<std::uint32_t, 4> counter) const {
    std::array<std::uint32_t, 2> key = key_;
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53} * counter[0];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * counter[2];
      counter = {static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
                 static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
      key[0] += 0x9E3779B9;
      key[1] += 0xBB67AE85;
    }
    return counter;
  }

  /// Words for a pair of 64-bit counters, low word first.
  std::array<std::uint32_t, 4> at(std::uint64_t a, std::uint64_t b = 0) const {
    return (*this)({static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32),
                    static_cast<std::uint32_t>(b), static_cast<std::uint32_t>(b >> 32)});
  }

  /// A double in [0, 1) from two words: 53 bits.
  static double uniform(std::uint32_t high, std::uint32_t low) {
    const std::uint64_t bits = (std::uint64_t{high} << 32 | low) >> 11;
    return static_cast<double>(bits) * 0x1.0p-53;
  }

 private:
  std::array<std::uint32_t, 2> key_;
};

}  // namespace andrea
