#include <gtest/gtest.h>

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
  for (const Recompute level : {Recompute::kNothing, Recompute::kCheap, Recompute::kLayer}) {
    PlanRequest request;
    request.batch = 3;
    request.micro_batches = 2;
    request.recompute = level;
    const MemoryPlan plan(shape, request, kNeeds);
    std::int64_t end = 0;
    for (const PlanEntry& e : plan.entries) {
      EXPECT_EQ(e.offset % 256, 0) << e.name;
      EXPECT_GE(e.offset, end) << e.name;
      end = e.offset + e.bytes;
    }
    EXPECT_LE(end, plan.device_bytes);
    EXPECT_LT(plan.device_bytes - end, 256);
    std::int64_t groups = 0;
    for (const char* g :
         {"weights", "gradients", "moments", "activations", "logits", "workspace", "sampling", "step"})
      groups += plan.group_bytes(g);
    EXPECT_EQ(groups, plan.device_bytes);
  }
}

TEST(Plan, EachLevelNeedsLess) {
  const ModelShape shape(nano().model);
  std::int64_t last = INT64_MAX;
  for (const Recompute level : {Recompute::kNothing, Recompute::kCheap, Recompute::kLayer}) {
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

TEST(Plan, ReportCountsTheLargeShapesWithoutAllocating) {
  Experiment e = nano();
  e.model = {1536, 24, 16, 1024, 8449, true};
  EngineOptions options;
  options.memory_bytes = parse_bytes("24GB");
  for (const Precision precision : {Precision::kFp32, Precision::kFp16, Precision::kBf16}) {
    e.train.precision = precision;
    const PlanReport report = plan_report(e, options);
    const auto json = nlohmann::json::parse(report.json);
    EXPECT_EQ(json["n_params"], 467636736);
    EXPECT_EQ(json["available_bytes"], 24'000'000'000);
    EXPECT_EQ(report.fits, json["device_bytes"].get<std::int64_t>() <= 24'000'000'000);
    EXPECT_NE(report.text.find("467636736"), std::string::npos);
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
