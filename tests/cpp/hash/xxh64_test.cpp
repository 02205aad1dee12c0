// XXH64 against values of the reference implementation (python: xxhash.xxh64(data, seed).hexdigest()).
#include "engine/hash/xxh64.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace andrea {
namespace {

// The bytes the values below were computed for.
std::vector<unsigned char> pattern(std::size_t n) {
  std::vector<unsigned char> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<unsigned char>(i * i * 7 + i * 31 + (i >> 3));
  return bytes;
}

struct Vector {
  std::size_t bytes;
  std::uint64_t seed;
  const char* hash;
};
const Vector kVectors[] = {
    {0, 0x0u, "ef46db3751d8e999"},
    {0, 0x1u, "d5afba1336a3be4b"},
    {0, 0x9e3779b97f4a7c15u, "c4349fc93c010000"},
    {1, 0x0u, "e934a84adb052768"},
    {1, 0x1u, "771917c7f6ee2451"},
    {1, 0x9e3779b97f4a7c15u, "126bb57a12364aa5"},
    {3, 0x0u, "ee63b6b1185f2576"},
    {3, 0x1u, "1473c26a510df921"},
    {3, 0x9e3779b97f4a7c15u, "76755414e69a2a29"},
    {4, 0x0u, "7442144d9b1db82f"},
    {4, 0x1u, "4b9069d14517be6c"},
    {4, 0x9e3779b97f4a7c15u, "1bb47284b25f5b17"},
    {5, 0x0u, "232a8f9abc3cd89d"},
    {5, 0x1u, "91a4f0cdb84357d0"},
    {5, 0x9e3779b97f4a7c15u, "533e336e6e0a5450"},
    {7, 0x0u, "52c166b9b37e03ed"},
    {7, 0x1u, "4c4481b62d1c81fb"},
    {7, 0x9e3779b97f4a7c15u, "5812a70e8efd7dca"},
    {8, 0x0u, "568d1366d4e432d7"},
    {8, 0x1u, "088d5bebb99cfc02"},
    {8, 0x9e3779b97f4a7c15u, "f8c55930c516cc14"},
    {11, 0x0u, "a2c73812e191dc14"},
    {11, 0x1u, "b533925f99c8236b"},
    {11, 0x9e3779b97f4a7c15u, "f366754fc558f7ca"},
    {12, 0x0u, "f7f9c2f3c7e27fe1"},
    {12, 0x1u, "b49799f6f3008ab9"},
    {12, 0x9e3779b97f4a7c15u, "c0cee46fba40728e"},
    {15, 0x0u, "84d94fd8fb11bb78"},
    {15, 0x1u, "6b9ee1eea57c74e1"},
    {15, 0x9e3779b97f4a7c15u, "2e493afac82cc63a"},
    {16, 0x0u, "37a36a6786eca5b4"},
    {16, 0x1u, "e4d18a96b902347e"},
    {16, 0x9e3779b97f4a7c15u, "927e6ac452058a47"},
    {31, 0x0u, "9550b52e6c809b37"},
    {31, 0x1u, "a0c274d8cd4a1529"},
    {31, 0x9e3779b97f4a7c15u, "571978a733c597ad"},
    {32, 0x0u, "5d1193c0cddc0863"},
    {32, 0x1u, "50422e37af6ef911"},
    {32, 0x9e3779b97f4a7c15u, "3bac0c5ce75fa035"},
    {33, 0x0u, "ca9e9a572ceeb7a8"},
    {33, 0x1u, "41612dd1f5a0a3b7"},
    {33, 0x9e3779b97f4a7c15u, "5b510ea7f5fc5972"},
    {63, 0x0u, "ce4bd3a2ef9ba2c5"},
    {63, 0x1u, "f6760ba9582a037b"},
    {63, 0x9e3779b97f4a7c15u, "b01e9514f5181657"},
    {64, 0x0u, "f761928d468d7205"},
    {64, 0x1u, "20baf1df664a65ce"},
    {64, 0x9e3779b97f4a7c15u, "55942a8ecd996ee1"},
    {65, 0x0u, "ce52c808113d458d"},
    {65, 0x1u, "dbdbb382f2b82b36"},
    {65, 0x9e3779b97f4a7c15u, "c4fa75b1223e3501"},
    {100, 0x0u, "4466067ed3881cfa"},
    {100, 0x1u, "978df6e91593eeee"},
    {100, 0x9e3779b97f4a7c15u, "ce02a67e8ce64059"},
    {127, 0x0u, "f1feb62caaebf020"},
    {127, 0x1u, "3a72c13e7a0c1968"},
    {127, 0x9e3779b97f4a7c15u, "0a91fdda3721fd68"},
    {128, 0x0u, "65247013a5d440d8"},
    {128, 0x1u, "39871ec1d9bad8a8"},
    {128, 0x9e3779b97f4a7c15u, "cc90e84638e4cc3d"},
    {1000, 0x0u, "7bdcb71ead05b4e9"},
    {1000, 0x1u, "259aba06f5b52791"},
    {1000, 0x9e3779b97f4a7c15u, "c19266f16eb12fcb"},
    {1100, 0x0u, "58877ceb33bda216"},
    {1100, 0x1u, "9a0cb1a769f5b95a"},
    {1100, 0x9e3779b97f4a7c15u, "936c1ca6b87c5b84"},
};

TEST(Xxh64, KnownValues) {
  for (const Vector& v : kVectors)
    EXPECT_EQ(hash_hex(xxh64(pattern(v.bytes).data(), v.bytes, v.seed)), v.hash) << v.bytes << " " << v.seed;
}

TEST(Xxh64, KnownText) {
  const std::string text = "Nobody inspects the spammish repetition";
  EXPECT_EQ(hash_hex(xxh64(text.data(), text.size())), "fbcea83c8a378bf1");
}

// However the bytes are cut, the digest is the same, and asking for it in between changes nothing.
TEST(Xxh64, StreamingInAnyPieces) {
  const std::vector<unsigned char> bytes = pattern(1000);
  const std::uint64_t whole = xxh64(bytes.data(), bytes.size(), 5);
  for (const std::size_t piece : {1u, 3u, 8u, 31u, 32u, 33u, 64u, 999u, 1000u}) {
    Xxh64 hash(5);
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      hash.update(bytes.data() + at, std::min(piece, bytes.size() - at));
      EXPECT_EQ(hash.digest(), xxh64(bytes.data(), std::min(at + piece, bytes.size()), 5));
    }
    EXPECT_EQ(hash.digest(), whole) << piece;
  }
}

TEST(Xxh64, EmptyUpdateChangesNothing) {
  Xxh64 hash;
  hash.update(nullptr, 0);
  EXPECT_EQ(hash.digest(), xxh64("", 0));
}

}  // namespace
}  // namespace andrea
