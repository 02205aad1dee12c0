#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/errors.h"
#include "engine/model/engine.h"

namespace andrea {
namespace {

Experiment nano() {
  Experiment e;
  e.name = "nano";
  e.model = {128, 4, 4, 256, 1281, true};
  e.train.steps = 10;
  e.train.batch_size = 8;
  return e;
}

const BackendNeeds kNeeds{4, 1000, 100};

TEST(Plan, BuffersDoNotOverlapAndAddUp) {
  const ModelShape shape(nano().model);
  for (const Recompute level : kRecomputeLevels) {
    PlanRequest request;
    request.batch = 3;
    request.micro_batches = 2;
    request.recompute = level;
    const MemoryPlan plan(shape, request, kNeeds);
    // Two buffers may lie over one another only if they hold something at different times.
    std::int64_t end = 0;
    for (const PlanEntry& e : plan.entries) {
      EXPECT_EQ(e.offset % 256, 0) << e.name;
      end = std::max(end, e.offset + e.bytes);
      for (const PlanEntry& other : plan.entries) {
        if (&other == &e) continue;
        const bool apart = e.offset + e.bytes <= other.offset || other.offset + other.bytes <= e.offset;
        const bool in_turn = e.turn != other.turn && e.turn != Turn::kAlways && other.turn != Turn::kAlways;
        EXPECT_TRUE(apart || in_turn) << e.name << " and " << other.name;
      }
    }
    EXPECT_LE(end, plan.device_bytes);
    EXPECT_LT(plan.device_bytes - end, 256);
    std::int64_t groups = 0;
    for (const char* g : {"weights", "gradients", "moments", "activations", "shared", "workspace", "step"})
      groups += plan.group_bytes(g);
    EXPECT_EQ(groups, plan.device_bytes);
  }
}

TEST(Plan, EachLevelNeedsLess) {
  const ModelShape shape(nano().model);
  std::int64_t last = INT64_MAX;
  for (const Recompute level : kRecomputeLevels) {
    PlanRequest request;
    request.batch = 8;
    request.recompute = level;
    const std::int64_t bytes = MemoryPlan(shape, request, kNeeds).device_bytes;
    EXPECT_LT(bytes, last);
    last = bytes;
  }
}

TEST(Plan, RefusesWithTheLargestBatchThatFits) {
  const ModelShape shape(nano().model);
  PlanRequest request;
  request.batch = 8;
  const NeedsOfBatch needs = [](std::int64_t batch) { return BackendNeeds{4, batch * 1000, 100}; };
  const std::int64_t available = 60'000'000;
  const std::int64_t largest = largest_batch(shape, request, needs, available);
  ASSERT_GT(largest, 0);
  request.batch = largest;
  EXPECT_LE(fit_plan(shape, request, needs, available).device_bytes, available);
  request.batch = largest + 1;
  try {
    fit_plan(shape, request, needs, available);
    FAIL() << "a plan that does not fit was accepted";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("batch_size that fits is " + std::to_string(largest)),
              std::string::npos)
        << error.what();
    EXPECT_GT(error.needed_bytes, error.available_bytes);
  }
  EXPECT_EQ(largest_batch(shape, request, needs, 1000), 0);
}

TEST(Plan, EngineRefusesBeforeItAllocates) {
  EngineOptions options;
  options.device = "cpu";
  options.memory_bytes = 1'000'000;
  EXPECT_THROW(Engine(nano(), options), OutOfMemory);
}

TEST(Plan, Fp8NeedsAWidthOfSixteens) {
  Experiment e = nano();
  e.train.precision = Precision::kFp8;
  EngineOptions options;
  options.device = "cuda";
  options.memory_bytes = parse_bytes("8GB");
  EXPECT_NO_THROW(plan_report(e, options));
  e.model.d_model = 120, e.model.n_head = 5;
  try {
    plan_report(e, options);
    FAIL() << "planned";
  } catch (const ConfigError& error) {
    for (const char* part : {"train.precision", "model.d_model", "multiple of 16", "120"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Plan, ReportCountsTheLargeShapesWithoutAllocating) {
  Experiment e = nano();
  e.model = {1536, 24, 16, 1024, 8449, true};
  EngineOptions options;
  options.memory_bytes = parse_bytes("24GB");
  for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16, Precision::kFp8}) {
    e.train.precision = precision;
    const PlanReport report = plan_report(e, options);
    const auto json = nlohmann::json::parse(report.json);
    EXPECT_EQ(json["n_params"], 467636736);
    EXPECT_EQ(json["available_bytes"], 24'000'000'000);
    EXPECT_EQ(report.fits, json["device_bytes"].get<std::int64_t>() <= 24'000'000'000);
    EXPECT_NE(report.text.find("467636736"), std::string::npos);
  }
}

MemoryPlan gpu_plan(const ModelConfig& model, Precision precision, std::int64_t available) {
  const ModelShape shape(model);
  PlanRequest request;
  request.batch = 8;
  request.precision = precision;
  request.steps_in_flight = 2;
  return closest_plan(shape, request, cuda_needs(shape, precision), available);
}

TEST(Plan, Fp8KeepsFactorsInsteadOfActivations) {
  const ModelConfig config{768, 12, 12, 1024, 8449, true};
  const std::int64_t rows = 8 * 1024, d = 768, plenty = std::int64_t{1} << 40;
  const auto has = [](const MemoryPlan& plan, const char* name) {
    return std::any_of(plan.entries.begin(), plan.entries.end(),
                       [&](const PlanEntry& e) { return e.name == name; });
  };
  const MemoryPlan fp8 = gpu_plan(config, Precision::kFp8, plenty),
                   bf16 = gpu_plan(config, Precision::kBf16, plenty);
  EXPECT_TRUE(fp8.keeps_factors);
  EXPECT_FALSE(bf16.keeps_factors);
  for (const char* name : {"ln1.5", "ln2.5", "g.5"}) {
    EXPECT_FALSE(has(fp8, name)) << name;
    EXPECT_TRUE(has(bf16, name)) << name;
  }
  EXPECT_TRUE(has(fp8, "att.5"));  // attention's backward pass reads it
  EXPECT_GT(fp8.entry("kept").bytes, 12 * (7 * rows * d + 12 * d * d));
  EXPECT_LT(fp8.device_bytes, bf16.device_bytes);

  // What is computed again is not kept, and each level needs less than the one before.
  std::int64_t before = fp8.device_bytes + 1;
  for (const Recompute level : kRecomputeLevels) {
    PlanRequest request;
    request.batch = 8, request.precision = Precision::kFp8, request.fixed_level = level;
    const ModelShape shape(config);
    const MemoryPlan plan = closest_plan(shape, request, cuda_needs(shape, Precision::kFp8), plenty);
    EXPECT_EQ(plan.keeps_factors, level == Recompute::kNothing);
    EXPECT_LT(plan.device_bytes, before);
    before = plan.device_bytes;
  }
  // Without a backward pass there is nothing to keep, and for rows that FP8 does not take neither.
  PlanRequest reading;
  reading.batch = 8, reading.precision = Precision::kFp8, reading.training = false;
  const ModelShape shape(config);
  EXPECT_FALSE(closest_plan(shape, reading, cuda_needs(shape, Precision::kFp8), plenty).keeps_factors);
  ModelConfig odd = config;
  odd.context = 1021;
  EXPECT_FALSE(gpu_plan(odd, Precision::kFp8, plenty).keeps_factors);
}

// Batches whose rows are for FP8 need more memory there than their neighbours: the largest is looked for in
// both.
TEST(Plan, TheLargestBatchIsTheLargest) {
  const ModelShape shape(ModelConfig{1024, 16, 12, 15, 257, true});
  PlanRequest request;
  request.precision = Precision::kFp8, request.fixed_level = Recompute::kNothing;
  const NeedsOfBatch needs = cuda_needs(shape, Precision::kFp8);
  const auto bytes = [&](std::int64_t batch) {
    request.batch = batch;
    return closest_plan(shape, request, needs, INT64_MAX).device_bytes;
  };
  ASSERT_GT(bytes(16), bytes(17));  // or this proves nothing
  for (const std::int64_t available :
       {bytes(15), bytes(16) - 1, bytes(16), bytes(40), bytes(64) - 1, bytes(64)}) {
    std::int64_t want = 0;
    for (std::int64_t batch = 1; batch < 120; ++batch)
      if (bytes(batch) <= available) want = batch;
    EXPECT_EQ(largest_batch(shape, request, needs, available), want) << available;
  }
}

TEST(Plan, NoMoreSequencesThanTheGpuTakes) {
  Experiment e = nano();
  EngineOptions options;
  options.device = "cuda";
  options.memory_bytes = std::int64_t{1} << 50;
  EXPECT_EQ(nlohmann::json::parse(plan_report(e, options).json)["largest_batch_size"], 65535);
  e.train.batch_size = 65536;
  try {
    plan_report(e, options);
    FAIL() << "planned";
  } catch (const ConfigError& error) {
    for (const char* part : {"train.batch_size", "65535", "65536", "micro_batches"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Plan, TheNamedSizesStayWithinTheirMemoryOnAGpu) {
  constexpr std::int64_t kMiB = 1 << 20;
  const ModelConfig m12{384, 12, 6, 1024, 4353, true}, m120{768, 12, 12, 1024, 8449, true};
  const std::int64_t h200 = std::int64_t{139} << 30;
  EXPECT_LE(gpu_plan(m12, Precision::kFp32, h200).device_bytes, 1331 * kMiB);  // 1.3 GiB
  EXPECT_LE(gpu_plan(m120, Precision::kFp16, h200).device_bytes,
            4090 * kMiB);  // 4.0 GiB, and the driver's grain
  EXPECT_EQ(gpu_plan(m120, Precision::kFp16, h200).request.recompute, Recompute::kNothing);
  EXPECT_EQ(gpu_plan(m120, Precision::kFp16, 3277 * kMiB).request.recompute, Recompute::kCheap);  // 3.2 GiB
}

TEST(Plan, AnExperimentMayFixTheLevel) {
  const ModelShape shape(nano().model);
  PlanRequest request;
  request.batch = 8;
  request.fixed_level = Recompute::kCheap;
  const NeedsOfBatch needs = [](std::int64_t) { return kNeeds; };
  EXPECT_EQ(fit_plan(shape, request, needs, INT64_MAX).request.recompute, Recompute::kCheap);
  try {
    fit_plan(shape, request, needs, 10'000'000);
    FAIL() << "another level was taken";
  } catch (const OutOfMemory& error) {
    EXPECT_NE(std::string(error.what()).find("train.recompute \"cheap\""), std::string::npos) << error.what();
  }
}

TEST(Plan, AGpuThatIsNotHereIsPlannedByRule) {
  Experiment e = nano();
  e.train.precision = Precision::kFp16;
  EngineOptions options;
  options.device = "cuda";
  options.memory_bytes = parse_bytes("8GB");
  const PlanReport report = plan_report(e, options);
  const auto json = nlohmann::json::parse(report.json);
  const ModelShape shape(e.model);
  EXPECT_GE(json["groups"]["workspace"].get<std::int64_t>(),
            cuda_needs(shape, Precision::kFp16)(8).scratch_bytes);
  EXPECT_GE(json["groups"]["workspace"].get<std::int64_t>(), 32 << 20);
  if (const auto present = backends_present(); std::count(present.begin(), present.end(), "cuda") == 0) {
    EXPECT_NE(report.text.find("by the rules of the CUDA back end"), std::string::npos) << report.text;
    options.memory_bytes = 0;
    EXPECT_NE(plan_report(e, options).text.find("give --memory"), std::string::npos);
  }
}

TEST(Bytes, SizesAreReadInBothSystems) {
  EXPECT_EQ(parse_bytes("24GB"), 24'000'000'000);
  EXPECT_EQ(parse_bytes("24 GiB"), std::int64_t{24} << 30);
  EXPECT_EQ(parse_bytes("1.5MB"), 1'500'000);
  EXPECT_EQ(parse_bytes("4096"), 4096);
  for (const char* bad : {"", "GB", "-1GB", "0", "nan", "12 parsecs", "1e400GB"})
    EXPECT_THROW(parse_bytes(bad), ConfigError) << bad;
}

}  // namespace
}  // namespace andrea
