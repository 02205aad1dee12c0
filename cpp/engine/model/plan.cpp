#include "engine/model/plan.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "engine/errors.h"
#include "kernels/backend.h"
#include "kernels/cuda/memory_rule.h"

namespace andrea {
namespace {

constexpr std::int64_t kAlignment = 256;  // bytes

std::int64_t round_up(std::int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

constexpr const char* kGroups[] = {"weights", "gradients", "moments", "activations",
                                   "shared",  "workspace", "step"};

const char* turn_name(Turn turn) {
  switch (turn) {
    case Turn::kAlways:
      return "always";
    case Turn::kLayers:
      return "layers";
    case Turn::kHead:
      return "head";
    case Turn::kSampling:
      return "sampling";
  }
  return "?";
}

}  // namespace

const char* recompute_key(Recompute level) {
  switch (level) {
    case Recompute::kNothing:
      return "nothing";
    case Recompute::kGelu:
      return "gelu";
    case Recompute::kCheap:
      return "cheap";
    case Recompute::kLayer:
      return "layer";
  }
  return "?";
}

Recompute first_level(Precision precision) {
  return precision == Precision::kFp32 ? Recompute::kGelu : Recompute::kNothing;
}

const char* recompute_name(Recompute level) {
  switch (level) {
    case Recompute::kNothing:
      return "nothing";
    case Recompute::kGelu:
      return "GELU";
    case Recompute::kCheap:
      return "LayerNorm and GELU";
    case Recompute::kLayer:
      return "whole layers";
  }
  return "?";
}

Extent extent_of(const ModelShape& shape, std::int64_t batch) {
  return {batch,       shape.context,   shape.d_model,    shape.n_head,          shape.n_layer,
          shape.vocab, shape.vocab_pad, shape.arena_size, /*keep_factors=*/false};
}

MemoryPlan::MemoryPlan(const ModelShape& shape, const PlanRequest& plan_request, const BackendNeeds& needs)
    : request(plan_request) {
  const std::int64_t act = needs.act_bytes;
  const std::int64_t rows = request.batch * shape.context;
  const std::int64_t d = shape.d_model;
  constexpr std::int64_t kFloat = sizeof(float);

  const auto add = [this](const std::string& name, const char* group, std::int64_t bytes) {
    entries.push_back({name, group, bytes, device_bytes, Turn::kAlways});
    device_bytes += round_up(bytes);
  };
  // Offsets of shared buffers count from the region's begin until the end of this function.
  std::map<Turn, std::int64_t> used;
  const auto share = [&](const std::string& name, Turn turn, std::int64_t bytes) {
    entries.push_back({name, "shared", bytes, used[turn], turn});
    used[turn] += round_up(bytes);
    shared_bytes = std::max(shared_bytes, used[turn]);
  };

  add("params", "weights", shape.arena_size * kFloat);
  if (act != kFloat) add("compute_weights", "weights", shape.n_matrix * act);
  if (request.training) {
    add("grads", "gradients", shape.arena_size * kFloat);
    add("m", "moments", shape.arena_size * kFloat);
    add("v", "moments", shape.arena_size * kFloat);
  } else {
    request.recompute = Recompute::kLayer;  // no backward pass: layers take turns in the same buffers
  }

  // Kept from forward to backward: once a layer, or once in all where the backward pass computes it again or
  // finds the factors of its products.
  keeps_factors = request.recompute == Recompute::kNothing && needs.factor_bytes > 0;
  const bool norms = shares_norms(), gelu = shares_gelu(), whole = shares_layers();
  const auto add_layers = [&](const std::string& name, std::int64_t bytes, bool again) {
    if (again) return share(name + ".0", Turn::kLayers, bytes);
    for (std::int64_t l = 0; l < shape.n_layer; ++l)
      add(name + "." + std::to_string(l), "activations", bytes);
  };
  add("residual", "activations", rows * d * act * (shape.n_layer + 1));  // input of each layer, and of LNf
  add_layers("ln1", rows * d * act, norms);
  add_layers("qkv", rows * 3 * d * act, whole);
  add_layers("lse", rows * shape.n_head * kFloat, whole);
  add_layers("att", rows * d * act, whole);
  add_layers("mid", rows * d * act, whole);  // residual stream between attention and MLP
  add_layers("ln2", rows * d * act, norms);
  add_layers("h", rows * 4 * d * act, whole);
  add_layers("g", rows * 4 * d * act, gelu);
  add("ln_stats", "activations", rows * 2 * kFloat * (2 * shape.n_layer + 1));
  add("lnf", "activations", rows * d * act);  // then the gradient of a branch, d_branch

  share("logits", Turn::kHead, rows * shape.vocab_pad * act);
  share("logits_float", Turn::kHead, std::min(rows, kLogitRows) * shape.vocab_pad * kFloat);
  share("losses", Turn::kHead, rows * kFloat);

  // Gradients of activations, shared by all layers.
  if (request.training) {
    share("d_residual", Turn::kLayers, rows * d * act);
    share("d_qkv", Turn::kLayers, rows * 3 * d * act);
  }
  add("scratch", "workspace", needs.scratch_bytes);
  if (const std::int64_t kept = needs.kept_bytes + (keeps_factors ? needs.factor_bytes : 0); kept > 0)
    add("kept", keeps_factors ? "activations" : "workspace", kept);

  // Generation: one token of each sequence at a time.
  const std::int64_t sequences = request.sequences;
  share("kv_cache", Turn::kSampling, shape.n_layer * 2 * sequences * shape.context * d * act);
  for (const auto& [name, width] :
       {std::pair{"x", 1}, {"mid", 1}, {"ln", 1}, {"qkv", 3}, {"att", 1}, {"h", 4}, {"g", 4}})
    share(std::string("decode.") + name, Turn::kSampling, sequences * width * d * act);
  share("decode.stats", Turn::kSampling, 2 * sequences * kFloat);
  share("decode.logits", Turn::kSampling, sequences * shape.vocab_pad * act);
  share("decode.logits_float", Turn::kSampling, sequences * shape.vocab_pad * kFloat);
  share("decode.input", Turn::kSampling, (sequences + 1) * static_cast<std::int64_t>(sizeof(std::int32_t)));

  const std::int64_t step_rows = request.batch * request.micro_batches;
  add("inputs", "step", step_rows * shape.context * 4);
  add("targets", "step", step_rows * shape.context * 4);
  add("row_losses", "step", step_rows * kFloat);
  add("partials", "step", needs.grad_norm_partials * static_cast<std::int64_t>(sizeof(double)));
  add("control", "step", sizeof(StepControl));
  add("status", "step", sizeof(StepStatus));

  for (PlanEntry& entry : entries)
    if (entry.turn != Turn::kAlways) entry.offset += device_bytes;
  device_bytes += shared_bytes;

  const std::int64_t slot_bytes = round_up(2 * step_rows * shape.context * 4) + round_up(step_rows * kFloat) +
                                  round_up(sizeof(StepControl)) + round_up(sizeof(StepStatus));
  const std::int64_t decode_bytes = decode_input_bytes() + sequences * shape.vocab_pad * kFloat;
  transfer_bytes = std::max<std::int64_t>(8 << 20, round_up(decode_bytes));
  host_bytes = request.steps_in_flight * slot_bytes + transfer_bytes;
  if (request.host_snapshot) host_bytes += 3 * round_up(shape.arena_size * kFloat);
}

std::int64_t MemoryPlan::decode_input_bytes() const {
  return round_up((request.sequences + 1) * static_cast<std::int64_t>(sizeof(std::int32_t)));
}

namespace {

// kept_bytes(extent) without factors, and what they add.
template <typename KeptBytes>
void set_kept(BackendNeeds* needs, Extent extent, const KeptBytes& kept_bytes) {
  needs->kept_bytes = static_cast<std::int64_t>(kept_bytes(extent));
  extent.keep_factors = true;
  needs->factor_bytes = static_cast<std::int64_t>(kept_bytes(extent)) - needs->kept_bytes;
}

}  // namespace

NeedsOfBatch backend_needs(const ModelShape& shape, const Ops& ops) {
  return [&shape, &ops](std::int64_t batch) {
    const Extent extent = extent_of(shape, batch);
    BackendNeeds needs;
    needs.act_bytes = static_cast<std::int64_t>(ops.act_bytes());
    needs.scratch_bytes = static_cast<std::int64_t>(ops.scratch_bytes(extent));
    needs.grad_norm_partials = ops.grad_norm_partials(shape.arena_size);
    set_kept(&needs, extent, [&ops](const Extent& e) { return ops.kept_bytes(e); });
    return needs;
  };
}

NeedsOfBatch cuda_needs(const ModelShape& shape, Precision precision) {
  return [&shape, precision](std::int64_t batch) {
    const Extent extent = extent_of(shape, batch);
    BackendNeeds needs;
    needs.act_bytes = cuda::activation_bytes(precision);
    needs.scratch_bytes = cuda::scratch_bytes_by_rule(extent, precision);
    needs.grad_norm_partials = cuda::grad_norm_partials_by_rule(shape.arena_size);
    set_kept(&needs, extent, [precision](const Extent& e) { return cuda::kept_bytes_by_rule(e, precision); });
    return needs;
  };
}

const PlanEntry& MemoryPlan::entry(const std::string& name) const {
  for (const PlanEntry& e : entries)
    if (e.name == name) return e;
  throw Error("the memory plan has no buffer \"" + name + "\"");
}

std::int64_t MemoryPlan::group_bytes(const std::string& group) const {
  if (group == "shared") return shared_bytes;
  std::int64_t bytes = 0;
  for (const PlanEntry& e : entries)
    if (e.group == group) bytes += round_up(e.bytes);
  return bytes;
}

std::string format_bytes(std::int64_t bytes) {
  const double b = static_cast<double>(bytes);
  char text[32];
  if (b < 1024.0 * 1024.0)
    std::snprintf(text, sizeof text, "%.1f KiB", b / 1024);
  else if (b < 1024.0 * 1024.0 * 1024.0)
    std::snprintf(text, sizeof text, "%.1f MiB", b / 1024 / 1024);
  else
    std::snprintf(text, sizeof text, "%.2f GiB", b / 1024 / 1024 / 1024);
  return text;
}

std::int64_t parse_bytes(const std::string& text) {
  static const std::map<std::string, double> kUnits = {
      {"", 1},         {"B", 1},          {"KB", 1e3},       {"MB", 1e6},          {"GB", 1e9},
      {"TB", 1e12},    {"KiB", 1024.},    {"MiB", 1048576.}, {"GiB", 1073741824.}, {"K", 1024.},
      {"M", 1048576.}, {"G", 1073741824.}};
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  while (end != nullptr && *end == ' ') ++end;
  const auto unit = kUnits.find(end == nullptr ? "?" : end);
  if (end == text.c_str() || unit == kUnits.end() || !(value > 0) || value * unit->second > 9e18)
    throw ConfigError("memory \"" + text +
                      "\": write a size such as 24GB (10^9 bytes), 24GiB (2^30) or 800MB");
  return static_cast<std::int64_t>(value * unit->second);
}

MemoryPlan closest_plan(const ModelShape& shape, PlanRequest request, const NeedsOfBatch& needs,
                        std::int64_t available) {
  const BackendNeeds backend = needs(request.batch);
  for (const Recompute level : kRecomputeLevels) {
    if (request.fixed_level ? level != *request.fixed_level : level < first_level(request.precision))
      continue;
    request.recompute = level;
    MemoryPlan plan(shape, request, backend);
    if (plan.device_bytes <= available || level == request.fixed_level || level == Recompute::kLayer)
      return plan;
  }
  throw Error("closest_plan: no recompute level");
}

std::int64_t largest_batch(const ModelShape& shape, PlanRequest request, const NeedsOfBatch& needs,
                           std::int64_t available) {
  const auto fits = [&](std::int64_t batch) {
    request.batch = batch;
    return closest_plan(shape, request, needs, available).device_bytes <= available;
  };
  if (!fits(1)) return 0;
  // FP8 keeps factors for some numbers of rows and activations for others; within a class memory only grows.
  const std::int64_t classes = request.precision == Precision::kFp8
                                   ? cuda::kFp8Multiple / std::gcd(cuda::kFp8Multiple, shape.context)
                                   : 1;
  std::int64_t largest = 1;
  for (std::int64_t offset = 0; offset < classes; ++offset) {
    std::int64_t low = 0, high = (cuda::kMostSequences - offset) / classes + 1;  // in steps of `classes`
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      (fits(offset + middle * classes) ? low : high) = middle;
    }
    if (const std::int64_t batch = offset + low * classes; batch > largest && fits(batch)) largest = batch;
  }
  return largest;
}

MemoryPlan fit_plan(const ModelShape& shape, PlanRequest request, const NeedsOfBatch& needs,
                    std::int64_t available) {
  MemoryPlan plan = closest_plan(shape, request, needs, available);
  if (plan.device_bytes <= available) return plan;
  const std::int64_t batch = largest_batch(shape, request, needs, available);
  const std::string advice = !request.training ? "; read fewer rows or write fewer texts at once (" +
                                                     std::to_string(request.sequences) + " now)"
                             : batch > 0 ? "; the largest batch_size that fits is " + std::to_string(batch) +
                                               " (raise micro_batches to keep the tokens of a step)"
                                         : "; not even batch_size 1 fits: choose a smaller model or context";
  throw OutOfMemory("the memory plan needs " + format_bytes(plan.device_bytes) + " at batch_size " +
                        std::to_string(request.batch) +
                        (request.fixed_level ? ", with train.recompute \"" +
                                                   std::string(recompute_key(*request.fixed_level)) + "\"; "
                                             : ", even with whole layers computed again; ") +
                        format_bytes(available) + " are available" + advice,
                    static_cast<std::size_t>(plan.device_bytes), static_cast<std::size_t>(available));
}

std::string describe_plan(const ModelShape& shape, const MemoryPlan& plan, std::int64_t available) {
  std::string text;
  char line[160];
  const auto put = [&](const char* name, const std::string& value, const std::string& note) {
    std::snprintf(line, sizeof line, "  %-12s %12s   %s\n", name, value.c_str(), note.c_str());
    text += line;
  };
  const std::int64_t tokens = plan.request.batch * plan.request.micro_batches * shape.context;
  text += "Memory plan: " + std::to_string(shape.n_params) + " parameters, " +
          precision_name(plan.request.precision) + ", " + std::to_string(plan.request.batch) + " x " +
          std::to_string(shape.context) + " tokens x " + std::to_string(plan.request.micro_batches) +
          " micro-batches = " + std::to_string(tokens) + " tokens a step\n";
  for (const std::string group : kGroups)
    put(group.c_str(), format_bytes(plan.group_bytes(group)),
        group == "shared" ? "logits, then the layers' working memory; between steps, generation" : "");
  put("total", format_bytes(plan.device_bytes),
      (available > 0 ? "available " + format_bytes(available) + "; " : "") +
          (plan.request.training
               ? std::string("computed again: ") + recompute_name(plan.request.recompute) +
                     (plan.request.fixed_level ? " (train.recompute)" : " (the plan's choice)")
               : "for reading, " + std::to_string(plan.request.sequences) + " texts written at once"));
  put("host", format_bytes(plan.host_bytes),
      plan.request.host_snapshot ? "staging of batches and results, snapshot for checkpoints"
                                 : "staging of batches and results");
  return text;
}

std::string plan_json(const ModelShape& shape, const MemoryPlan& plan, std::int64_t available,
                      std::int64_t max_batch) {
  nlohmann::json json;
  json["n_params"] = shape.n_params;
  json["precision"] = precision_name(plan.request.precision);
  json["batch_size"] = plan.request.batch;
  json["micro_batches"] = plan.request.micro_batches;
  json["tokens_per_step"] = plan.request.batch * plan.request.micro_batches * shape.context;
  json["recompute"] = recompute_key(plan.request.recompute);
  json["recompute_fixed"] = plan.request.fixed_level.has_value();
  json["device_bytes"] = plan.device_bytes;
  json["host_bytes"] = plan.host_bytes;
  if (available > 0) {
    json["available_bytes"] = available;
    json["largest_batch_size"] = max_batch;
  } else {  // the device is not here and no budget was given
    json["available_bytes"] = json["largest_batch_size"] = nullptr;
  }
  json["fits"] = available <= 0 || plan.device_bytes <= available;
  for (const char* group : kGroups) json["groups"][group] = plan.group_bytes(group);
  for (const PlanEntry& e : plan.entries)
    json["buffers"].push_back({{"name", e.name},
                               {"group", e.group},
                               {"bytes", e.bytes},
                               {"offset", e.offset},
                               {"turn", turn_name(e.turn)}});
  return json.dump();
}

}  // namespace andrea
