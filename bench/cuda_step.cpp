// Milliseconds of a whole optimizer step on the GPU: forward, backward, clip, AdamW, one recorded graph.
//
//   cuda_step [SHAPES [PRECISIONS [BATCH [STEPS [RECOMPUTE]]]]]     e.g.  cuda_step 12M,120M fp16,fp32 8 40
//
// RECOMPUTE is nothing, cheap (LayerNorm and GELU) or layer; without it the least that fits is taken.
// Random ids and weights as at the start of a run, T = 1024, one micro-batch, two steps in flight as in
// training. Prints the mean time of a step, the median and its spread, tokens/s, TFLOP/s by
// ModelShape::flops(), device bytes by plan and as the driver counts them, and the first and last loss.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "engine/model/model.h"

namespace {

struct Shape {
  const char* name;
  andrea::ModelConfig config;
};
const Shape kShapes[] = {{"NANO", {128, 4, 4, 256, 1281, true}},
                         {"12M", {384, 12, 6, 1024, 4353, true}},
                         {"120M", {768, 12, 12, 1024, 8449, true}},
                         {"480M", {1536, 24, 16, 1024, 8449, true}}};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

void measure(const Shape& which, andrea::Precision precision, std::int64_t B, int steps,
             const std::string& recompute) {
  andrea::Backend backend = andrea::make_backend({"cuda", precision, false, 0});
  const andrea::ModelShape shape(which.config);
  andrea::PlanRequest request;
  request.batch = B;
  request.precision = precision;
  request.steps_in_flight = backend.device->steps_in_flight();
  const std::size_t free_before = backend.device->info().free_bytes;
  const andrea::NeedsOfBatch needs = andrea::backend_needs(shape, *backend.ops);
  request.recompute = recompute == "cheap"   ? andrea::Recompute::kCheap
                      : recompute == "layer" ? andrea::Recompute::kLayer
                                             : andrea::Recompute::kNothing;
  const andrea::MemoryPlan plan =
      recompute.empty() ? andrea::fit_plan(shape, request, needs, static_cast<std::int64_t>(free_before))
                        : andrea::MemoryPlan(shape, request, needs(B));
  andrea::Model model(shape, plan, backend);

  std::mt19937 random(7);
  std::vector<float> weights(static_cast<std::size_t>(shape.arena_size), 0.0F);
  for (const andrea::ParamSpec& p : shape.params) {
    std::normal_distribution<float> normal(0.0F, static_cast<float>(p.init_std > 0 ? p.init_std : 1.0));
    for (std::int64_t i = 0; i < p.size(); ++i)
      weights[static_cast<std::size_t>(p.offset + i)] = p.init_std > 0 ? normal(random) : p.init_value;
  }
  model.set_arena(andrea::Model::Arena::kWeights, weights.data());
  if (precision == andrea::Precision::kFp16) model.set_loss_scale(32768.0F, 0);
  const std::int64_t T = shape.context;
  constexpr std::int64_t kBatches = 8;  // in turn, so that the model does not just learn one by heart
  std::vector<std::int32_t> ids(static_cast<std::size_t>(kBatches * B * (T + 1)));
  std::uniform_int_distribution<std::int32_t> any(0, static_cast<std::int32_t>(shape.vocab) - 1);
  for (std::int32_t& id : ids) id = any(random);

  andrea::StepControl control{
      3e-4F, 0.9F, 0.95F, 1e-8F, 0.1F, 0.0F, 0.0F, 1.0F, precision == andrea::Precision::kFp16 ? 2000 : 0};
  std::vector<float> losses(static_cast<std::size_t>(B));
  std::vector<double> times;
  double first_loss = NAN;
  double last_loss = NAN;
  int skipped = 0;
  auto before = std::chrono::steady_clock::now();
  auto begin = before;
  const auto finish = [&](int step) {
    const andrea::StepStatus status = model.read_step(step % 2, losses.data());
    const auto now = std::chrono::steady_clock::now();
    if (step >= 8) times.push_back(std::chrono::duration<double, std::milli>(now - before).count());
    if (step == 7) begin = now;
    before = now;
    double loss = 0.0;
    for (const float x : losses) loss += x / static_cast<double>(B);
    if (step == 0) first_loss = loss;
    last_loss = loss;
    skipped += status.apply == 0 ? 1 : 0;
  };
  const int total = steps + 8;
  for (int step = 0; step < total; ++step) {
    if (step >= 2) finish(step - 2);
    control.bias_correction1 = static_cast<float>(1.0 - std::pow(0.9, step + 1));
    control.bias_correction2 = static_cast<float>(1.0 - std::pow(0.95, step + 1));
    model.queue_step(step % 2, ids.data() + step % kBatches * B * (T + 1), control);
  }
  finish(total - 2);
  finish(total - 1);
  const std::size_t free_after = backend.device->info().free_bytes;

  std::sort(times.begin(), times.end());
  const double ms = times[times.size() / 2];
  const double low = times[times.size() / 20];
  const double high = times[times.size() - 1 - times.size() / 20];
  const double tokens = static_cast<double>(B * T);
  const double mean = std::chrono::duration<double, std::milli>(before - begin).count() / steps;
  std::printf(
      "andrea %s %s B=%lld params=%lld ms=%.3f (median %.3f, %.3f..%.3f) tok/s=%.0f TFLOPs=%.1f plan=%.3fGiB "
      "taken=%.3fGiB "
      "recompute=%s loss %.3f -> %.3f skipped=%d\n",
      which.name, andrea::precision_name(precision), static_cast<long long>(B),
      static_cast<long long>(shape.n_params), mean, ms, low, high, tokens / mean * 1e3,
      shape.flops(B * T) / mean / 1e9, static_cast<double>(plan.device_bytes) / 1073741824.0,
      static_cast<double>(free_before - free_after) / 1073741824.0,
      andrea::recompute_name(plan.request.recompute), first_loss, last_loss, skipped);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> shapes = split(argc > 1 ? argv[1] : "12M,120M,480M");
    const std::vector<std::string> precisions = split(argc > 2 ? argv[2] : "fp16");
    const std::int64_t B = argc > 3 ? std::stoll(argv[3]) : 8;
    const int steps = argc > 4 ? std::stoi(argv[4]) : 40;
    for (const Shape& shape : kShapes)
      if (std::find(shapes.begin(), shapes.end(), shape.name) != shapes.end())
        for (const std::string& name : precisions)
          measure(shape,
                  name == "fp32"   ? andrea::Precision::kFp32
                  : name == "bf16" ? andrea::Precision::kBf16
                                   : andrea::Precision::kFp16,
                  B, steps, argc > 5 ? argv[5] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_step: %s\n", error.what());
    return 70;
  }
  return 0;
}
