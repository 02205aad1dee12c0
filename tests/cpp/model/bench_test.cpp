// --bench: the calls of a step are recorded with their costs, and the report adds up.
#include "engine/bench/bench.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "engine/bench/recorded_ops.h"
#include "engine/errors.h"

namespace andrea {
namespace {

Experiment tiny() {
  Experiment e;
  e.name = "tiny";
  e.model = {32, 2, 3, 16, 100, true};
  e.train.steps = 10;
  e.train.batch_size = 2;
  e.train.micro_batches = 2;
  return e;
}

BenchReport bench(const Experiment& experiment, const BenchOptions& options) {
  EngineOptions engine;
  engine.device = "cpu";
  engine.threads = 1;
  return run_bench(experiment, engine, options);
}

TEST(Bench, CountsTheCallsAndFlopsOfAStep) {
  BenchOptions options;
  options.steps = 3;
  int polls = 0;
  options.poll = [&] { ++polls; };
  const BenchReport r = bench(tiny(), options);
  std::map<std::string, OperationTime> operations;
  double products = 0, attention = 0;
  for (const OperationTime& o : r.operations) {
    operations[o.name] = o;
    EXPECT_GT(o.ms, 0) << o.name;
    EXPECT_GT(o.bytes, 0) << o.name;
    EXPECT_GT(o.floor_ms, 0) << o.name;
    (o.name == "attn_fwd" || o.name == "attn_bwd" ? attention : products) += o.flops;
  }
  const std::map<std::string, int> calls{
      {"embed_fwd", 2},    {"layernorm_fwd", 14},    {"attn_qkv_fwd", 6},
      {"attn_fwd", 6},     {"mlp_fwd", 6},           {"head_fwd", 2},
      {"loss_fwd_bwd", 2}, {"row_loss", 2},          {"head_bwd", 2},
      {"mlp_bwd", 6},      {"attn_bwd", 6},          {"layernorm_bwd", 14},
      {"embed_bwd", 2},    {"grad_norm_partial", 1}, {"grad_norm_final", 1},
      {"attn_qkv_bwd", 6}, {"attn_out_fwd", 6},      {"attn_out_bwd", 6},
      {"adamw", 1}};
  EXPECT_EQ(operations.size(), calls.size());
  for (const auto& [name, count] : calls) EXPECT_EQ(operations[name].calls, count) << name;

  // The stated formula counts attention forward once and backward twice; the backward pass needs 5 products
  // where the forward one needs 2. LayerNorm's parameters are no products, the padding of the head is.
  const double tokens = 2 * 2 * 16, d = 32, L = 3;
  EXPECT_DOUBLE_EQ(products, tokens * 6 * (128 * d + L * 12 * d * d));
  EXPECT_DOUBLE_EQ(attention, tokens * 7 * L * d * 16);
  EXPECT_DOUBLE_EQ(r.step_flops,
                   tokens * (6 * (100 * d + L * (12 * d * d + 4 * d) + 2 * d) + 6 * L * d * 16));

  EXPECT_EQ(r.steps, 3);
  EXPECT_GT(polls, 20);
  EXPECT_LE(r.low_ms, r.median_ms);
  EXPECT_LE(r.median_ms, r.high_ms);
  EXPECT_NEAR(r.tokens_per_second(), tokens / r.median_ms * 1e3, 1);
  EXPECT_GT(r.peaks.gemm_flops, 1e8);
  EXPECT_EQ(r.peaks.wide_flops, r.peaks.gemm_flops);
  EXPECT_GT(r.peaks.copy_bytes, 1e7);
  EXPECT_GT(r.first_loss, 4.0F);
  EXPECT_NE(r.last_loss, r.first_loss);  // it really trains
}

TEST(Bench, ReportsForPeopleAndPrograms) {
  BenchOptions options;
  options.steps = 2;
  options.only = "attn_";
  const BenchReport r = bench(tiny(), options);
  ASSERT_EQ(r.operations.size(), 6U);
  const auto json = nlohmann::json::parse(bench_json(r));
  EXPECT_EQ(json["operations"].size(), 6U);
  EXPECT_EQ(json["step"]["median_ms"].get<double>(), r.median_ms);
  EXPECT_EQ(json["memory"]["plan_bytes"].get<std::int64_t>(), r.plan.device_bytes);
  EXPECT_TRUE(json["share_of_nominal_peak"].is_null());
  EXPECT_NEAR(json["share_of_gemm_peak"].get<double>(), r.flops_per_second() / r.peaks.gemm_flops, 1e-12);
  EXPECT_EQ(json["gemm_table"].size(), 1U);
  const std::string text = describe_bench(r);
  for (const char* part : {"tokens/s", "TFLOP/s", "n/a", "attn_bwd", "% floor", "plan "})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(Bench, MaySayThatItWasInterruptedOrDoesNotFit) {
  BenchOptions options;
  options.poll = [] { throw Error("enough"); };
  EXPECT_THROW(bench(tiny(), options), Error);
  EngineOptions small;
  small.device = "cpu";
  small.memory_bytes = 1000;
  EXPECT_THROW(run_bench(tiny(), small, {}), OutOfMemory);
}

TEST(NominalPeak, IsKnownForWholeDevicesOnly) {
  EXPECT_EQ(nominal_peak("NVIDIA H200", Precision::kFp16, false), 989.4e12);
  EXPECT_EQ(nominal_peak("NVIDIA H100 PCIe", Precision::kBf16, false), 756e12);
  EXPECT_EQ(nominal_peak("NVIDIA A100-SXM4-80GB", Precision::kFp32, false), 19.5e12);
  EXPECT_EQ(nominal_peak("NVIDIA A100-SXM4-80GB", Precision::kFp32, true), 156e12);
  EXPECT_EQ(nominal_peak("NVIDIA H200", Precision::kFp8, false), 1978.9e12);
  EXPECT_FALSE(nominal_peak("NVIDIA A100-SXM4-80GB", Precision::kFp8, false));
  EXPECT_FALSE(nominal_peak("NVIDIA GeForce RTX 4090 Laptop GPU", Precision::kFp16, false));
  EXPECT_FALSE(nominal_peak("NVIDIA H200 MIG 1g.18gb", Precision::kFp16, false));
  EXPECT_FALSE(nominal_peak("AMD EPYC 7763", Precision::kFp32, false));
}

}  // namespace
}  // namespace andrea
