// What is said of a GPU or driver that cannot be used: always both versions.
#include "kernels/cuda/gpu_refusal.h"

#include <gtest/gtest.h>

namespace andrea::cuda {
namespace {

GpuFacts rtx3060() {
  GpuFacts facts;
  facts.driver = 13000;
  facts.runtime = 13000;
  facts.gpus = 1;
  facts.name = "NVIDIA GeForce RTX 3060";
  facts.major = 8;
  facts.minor = 6;
  facts.kernels_fit = true;
  facts.architectures = "80, 86, 89, 90";
  return facts;
}

void expect_parts(const GpuFacts& facts, std::initializer_list<const char*> parts) {
  const std::string text = gpu_refusal(facts);
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
}

TEST(GpuRefusal, IsEmptyForAGpuThatWorks) {
  EXPECT_EQ(gpu_refusal(rtx3060()), "");
  GpuFacts newer_driver = rtx3060();
  newer_driver.driver = 13010;
  EXPECT_EQ(gpu_refusal(newer_driver), "");
  GpuFacts minor_compatible = rtx3060();  // CUDA starts: an older driver of the same major version will do
  minor_compatible.driver = 13000;
  minor_compatible.runtime = 13020;
  EXPECT_EQ(gpu_refusal(minor_compatible), "");
}

TEST(GpuRefusal, NamesTheVersionsOfDriverAndBuild) {
  GpuFacts facts = rtx3060();
  facts.driver = 0;
  expect_parts(facts, {"no NVIDIA driver", "CUDA 13.0"});
  facts.driver = 12040;
  facts.driver_too_old = true;
  expect_parts(facts, {"supports CUDA 12.4", "uses CUDA 13.0", "newer driver", "older toolkit"});
  facts.driver_too_old = false;
  facts.start_error = "forward compatibility was attempted on non supported HW";
  expect_parts(facts, {"supports CUDA 12.4", "uses CUDA 13.0"});
  facts.driver = 13010;
  expect_parts(facts, {"does not start", "forward compatibility", "13.1", "13.0"});
}

TEST(GpuRefusal, NamesTheGpuAndTheArchitecturesOfTheBuild) {
  GpuFacts facts = rtx3060();
  facts.gpus = 0;
  expect_parts(facts, {"no GPU found", "CUDA_VISIBLE_DEVICES"});
  facts = rtx3060();
  facts.gpu_error = "unknown error";
  expect_parts(facts, {"does not answer", "unknown error"});
  facts = rtx3060();
  facts.name = "Tesla T4", facts.major = 7, facts.minor = 5;
  expect_parts(facts, {"Tesla T4", "7.5", "8.0 or newer"});
  facts = rtx3060();
  facts.kernels_fit = false;
  facts.architectures = "90";
  expect_parts(facts, {"RTX 3060", "8.6", "architectures 90", "CMAKE_CUDA_ARCHITECTURES=86"});
}

TEST(GpuRefusal, Fp8NeedsAdaOrNewer) {
  for (const char* fit : {"8.9", "9.0", "10.0", "12.0"}) EXPECT_EQ(fp8_refusal("some GPU", fit), "");
  for (const char* old : {"8.0", "8.6", "8.7"}) {
    const std::string text = fp8_refusal("NVIDIA GeForce RTX 3060", old);
    for (const char* part : {"RTX 3060", old, "8.9", "fp16 or bf16"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
}

}  // namespace
}  // namespace andrea::cuda
