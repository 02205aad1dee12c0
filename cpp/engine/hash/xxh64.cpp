#include "engine/hash/xxh64.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace andrea {
namespace {

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87ULL;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4FULL;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9ULL;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63ULL;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5ULL;

std::uint64_t rotate_left(std::uint64_t x, int bits) { return (x << bits) | (x >> (64 - bits)); }

// The formats are little-endian and so are all machines this project builds for.
template <class Word>
Word load(const unsigned char* p) {
  Word word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

std::uint64_t round_lane(std::uint64_t lane, std::uint64_t word) {
  return rotate_left(lane + word * kPrime2, 31) * kPrime1;
}

std::uint64_t merge_lane(std::uint64_t hash, std::uint64_t lane) {
  return (hash ^ round_lane(0, lane)) * kPrime1 + kPrime4;
}

}  // namespace

Xxh64::Xxh64(std::uint64_t seed)
    : lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1}, seed_(seed) {}

void Xxh64::update(const void* data, std::size_t bytes) {
  if (bytes == 0) return;
  const auto* p = static_cast<const unsigned char*>(data);
  total_bytes_ += bytes;
  const auto consume_stripe = [this](const unsigned char* stripe) {
    for (int lane = 0; lane < 4; ++lane)
      lanes_[lane] = round_lane(lanes_[lane], load<std::uint64_t>(stripe + 8 * lane));
  };
  if (tail_bytes_ > 0) {
    const std::size_t take = std::min(bytes, tail_.size() - tail_bytes_);
    std::memcpy(tail_.data() + tail_bytes_, p, take);
    tail_bytes_ += take;
    p += take;
    bytes -= take;
    if (tail_bytes_ < tail_.size()) return;
    consume_stripe(tail_.data());
    tail_bytes_ = 0;
  }
  for (; bytes >= tail_.size(); p += tail_.size(), bytes -= tail_.size()) consume_stripe(p);
  std::memcpy(tail_.data(), p, bytes);
  tail_bytes_ = bytes;
}

std::uint64_t Xxh64::digest() const {
  std::uint64_t hash = seed_ + kPrime5;
  if (total_bytes_ >= tail_.size()) {
    hash = rotate_left(lanes_[0], 1) + rotate_left(lanes_[1], 7) + rotate_left(lanes_[2], 12) +
           rotate_left(lanes_[3], 18);
    for (const std::uint64_t lane : lanes_) hash = merge_lane(hash, lane);
  }
  hash += total_bytes_;
  const unsigned char* p = tail_.data();
  std::size_t left = tail_bytes_;
  for (; left >= 8; p += 8, left -= 8)
    hash = rotate_left(hash ^ round_lane(0, load<std::uint64_t>(p)), 27) * kPrime1 + kPrime4;
  for (; left >= 4; p += 4, left -= 4)
    hash = rotate_left(hash ^ (load<std::uint32_t>(p) * kPrime1), 23) * kPrime2 + kPrime3;
  for (; left > 0; ++p, --left) hash = rotate_left(hash ^ (*p * kPrime5), 11) * kPrime1;
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

std::uint64_t xxh64(const void* data, std::size_t bytes, std::uint64_t seed) {
  Xxh64 hash(seed);
  hash.update(data, bytes);
  return hash.digest();
}

std::string hash_hex(std::uint64_t hash) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

}  // namespace andrea
