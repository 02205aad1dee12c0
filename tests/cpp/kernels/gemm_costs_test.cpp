// The rule that chooses kernels for products on Hopper; no GPU needed.
#include "kernels/cuda/gemm_costs.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace andrea::cuda {
namespace {

constexpr int kSms = 132;
constexpr std::int64_t kRows = 8192;

TEST(GemmCosts, FillTheLastWave) {
  // dW of W_1 at d_model 768: 120 tiles of 128 x 160 are one wave of 132, and so are 128 smaller ones.
  const auto w_1 = better_configuration(GemmCosts::kWeight, 3072, 768, kRows, kSms, 29, 1);
  ASSERT_TRUE(w_1);
  EXPECT_EQ(w_1->tile, 458U);  // 192 x 96
  EXPECT_EQ(w_1->split_k, 1);
  // dW of W_Q|W_K|W_V at 1536: 216 tiles of 128 x 256 leave a third of two waves empty.
  const auto qkv = better_configuration(GemmCosts::kWeight, 4608, 1536, kRows, kSms, 23, 1);
  ASSERT_TRUE(qkv);
  EXPECT_EQ(qkv->tile, 458U);
  // The same product on a GPU that it fills is left alone.
  EXPECT_FALSE(better_configuration(GemmCosts::kWeight, 4608, 1536, kRows, 216, 23, 1));
}

TEST(GemmCosts, SplitLongSumsOfFewTiles) {
  const auto w_2 = better_configuration(GemmCosts::kWeight, 384, 1536, kRows, kSms, 27, 1);
  ASSERT_TRUE(w_2);
  EXPECT_EQ(w_2->split_k, 4);
}

TEST(GemmCosts, OverlapTheStoresOfShortSums) {
  for (const std::int64_t d : {512, 768}) {
    const auto w_1 = better_configuration(GemmCosts::kForward, kRows, 4 * d, d, kSms, 24, 1);
    ASSERT_TRUE(w_1) << d;
    EXPECT_EQ(w_1->tile, 201U) << d;  // 176 x 128 instead of 256 x 128
  }
  // The stores of a long sum are few beside its arithmetic.
  EXPECT_FALSE(better_configuration(GemmCosts::kForwardAdd, kRows, 1536, 6144, kSms, 24, 1));
}

TEST(GemmCosts, LeaveToTheLibraryWhatTheyDoNotKnow) {
  EXPECT_FALSE(better_configuration(GemmCosts::kForward, kRows, 3072, 768, kSms, 9999, 1));
  EXPECT_FALSE(better_configuration(GemmCosts::kForward, kRows, 3072, 768, kSms, 24, 7));
  EXPECT_FALSE(better_configuration(GemmCosts::kForward, 1, 3072, 768, kSms, 24, 1));
  EXPECT_FALSE(better_configuration(GemmCosts::kForward, 0, 3072, 768, kSms, 24, 1));
  EXPECT_TRUE(better_configuration(GemmCosts::kForwardAdd, kRows, 1536, 1536, kSms, 24, 1));
  EXPECT_FALSE(better_configuration(GemmCosts::kForwardAdd, kRows, 768, 768, kSms, 31, 1));
  // Of its own choice they never say that it is better than itself.
  for (const GemmCosts costs : {GemmCosts::kForward, GemmCosts::kForwardAdd, GemmCosts::kInput,
                                GemmCosts::kWeight, GemmCosts::kForward8, GemmCosts::kForwardAdd8})
    for (const std::int64_t d : {384, 768, 1536, 2048}) {
      const auto first = better_configuration(costs, kRows, 4 * d, d, kSms, 24, 1);
      if (!first) continue;
      EXPECT_FALSE(better_configuration(costs, kRows, 4 * d, d, kSms, first->tile, first->split_k)) << d;
    }
}

}  // namespace
}  // namespace andrea::cuda
