// The memory plan: every byte the engine takes, known before the first allocation.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/shape.h"
#include "kernels/ops.h"

namespace andrea {

/// What the backward pass computes again instead of keeping it. The levels give the same bits, but for one
/// case: in 16 bits at d_model >= 768 on CUDA, kNothing takes gelu' from the library (docs/KERNELS.md).
enum class Recompute {
  kNothing = 0,  ///< every activation is kept (FP8: what products read of them, as their factors)
  kGelu = 1,     ///< GELU again, in the pass that needs its derivative anyway
  kCheap = 2,    ///< LayerNorm outputs and GELU again
  kLayer = 3,    ///< each layer's whole forward pass again, from its input
};
constexpr Recompute kRecomputeLevels[] = {Recompute::kNothing, Recompute::kGelu, Recompute::kCheap,
                                          Recompute::kLayer};
/// As `train.recompute` writes it: "nothing", "gelu", "cheap", "layer".
const char* recompute_key(Recompute level);
/// For people: "nothing", "GELU", "LayerNorm and GELU", "whole layers".
const char* recompute_name(Recompute level);
/// Where the search for a level begins: in float32 the backward pass has gelu(h) at hand beside gelu'(h), so
/// keeping it buys nothing; in 16 bits keeping it is the faster way.
Recompute first_level(Precision precision);

/// Rows of logits that leave the device at once.
constexpr std::int64_t kLogitRows = 64;

/// What a plan is made for.
struct PlanRequest {
  std::int64_t batch = 1;  ///< B, rows of a micro-batch
  std::int64_t micro_batches = 1;
  Precision precision = Precision::kFp32;
  std::int64_t steps_in_flight = 1;
  bool host_snapshot = false;  ///< weights and moments are copied to the host before a checkpoint is written
  bool training = true;        ///< false: no gradients and no moments, only what reads the weights
  std::int64_t sequences = 1;  ///< S, texts that are generated at once
  Recompute recompute = Recompute::kNothing;  ///< of this plan
  std::optional<Recompute> fixed_level;       ///< the experiment's: no other level is tried
};

/// What a plan has to know of the back end.
struct BackendNeeds {
  std::int64_t act_bytes = 4;
  std::int64_t scratch_bytes = 0;       ///< Ops::scratch_bytes for the extent
  std::int64_t grad_norm_partials = 0;  ///< Ops::grad_norm_partials for the arena
  std::int64_t kept_bytes = 0;          ///< Ops::kept_bytes for the extent
  std::int64_t factor_bytes = 0;        ///< what kept_bytes grows by with Extent::keep_factors
};
/// The same as a function of the batch.
using NeedsOfBatch = std::function<BackendNeeds(std::int64_t batch)>;
NeedsOfBatch backend_needs(const ModelShape& shape, const Ops& ops);
/// The same of a GPU that need not be here, by the rules of the CUDA back end.
NeedsOfBatch cuda_needs(const ModelShape& shape, Precision precision);

/// When a buffer of the group "shared" holds something. Those of different turns lie over one another.
enum class Turn {
  kAlways,    ///< not shared
  kLayers,    ///< the layers' passes, forward and backward: working memory and what is computed again
  kHead,      ///< logits and losses, from the head's forward pass to its backward pass
  kSampling,  ///< generation, between two steps
};

/// A buffer of the arena.
struct PlanEntry {
  std::string name;
  std::string group;  ///< weights, gradients, moments, activations, shared, workspace, step
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  ///< in the one device allocation, aligned to 256 bytes
  Turn turn = Turn::kAlways;
};

/// Device buffers in the order of the arena, and the host bytes beside them. A plan is pure arithmetic.
class MemoryPlan {
 public:
  /// `needs` for the request's batch.
  MemoryPlan(const ModelShape& shape, const PlanRequest& request, const BackendNeeds& needs);

  const PlanEntry& entry(const std::string& name) const;
  std::int64_t group_bytes(const std::string& group) const;
  /// These stand once for all layers, under index 0, instead of once a layer: what serves one layer at a
  /// time.
  bool shares_norms() const { return keeps_factors || request.recompute >= Recompute::kCheap; }
  bool shares_gelu() const { return keeps_factors || request.recompute >= Recompute::kGelu; }
  bool shares_layers() const { return request.recompute == Recompute::kLayer; }  ///< and all the others
  /// The front of the transfer buffer, for the ids and the position that decoding reads; logits stand behind.
  std::int64_t decode_input_bytes() const;

  PlanRequest request;
  std::vector<PlanEntry> entries;
  std::int64_t device_bytes = 0;    ///< the one allocation
  std::int64_t shared_bytes = 0;    ///< of it, the region that logits, layers and sampling use in turns
  std::int64_t host_bytes = 0;      ///< staging of batches and results, the snapshot, and:
  std::int64_t transfer_bytes = 0;  ///< the host buffer that weights and logits travel through
  bool keeps_factors = false;       ///< Extent::keep_factors: LayerNorm and GELU outputs serve one layer each
};

/// Extent of one micro-batch, for Ops::scratch_bytes.
Extent extent_of(const ModelShape& shape, std::int64_t batch);

/// "12.3 MiB", "1.40 GiB".
std::string format_bytes(std::int64_t bytes);
/// "24GB", "24 GiB", "800MB" or plain bytes; ConfigError otherwise. GB are 10^9, GiB 2^30.
std::int64_t parse_bytes(const std::string& text);

/// Finds the first recompute level, from first_level() on (or the fixed one), at which the plan fits
/// `available` bytes. fit_plan() refuses with OutOfMemory, which says what is needed, what is there, and the
/// largest batch that fits; closest_plan() then returns the highest level, with device_bytes above it.
MemoryPlan closest_plan(const ModelShape& shape, PlanRequest request, const NeedsOfBatch& needs,
                        std::int64_t available);
MemoryPlan fit_plan(const ModelShape& shape, PlanRequest request, const NeedsOfBatch& needs,
                    std::int64_t available);
/// Largest B that fits at any recompute level, up to cuda::kMostSequences; 0 if not even one row does.
std::int64_t largest_batch(const ModelShape& shape, PlanRequest request, const NeedsOfBatch& needs,
                           std::int64_t available);

/// The plan as lines for people, and as JSON. available 0: not known.
std::string describe_plan(const ModelShape& shape, const MemoryPlan& plan, std::int64_t available);
std::string plan_json(const ModelShape& shape, const MemoryPlan& plan, std::int64_t available,
                      std::int64_t largest_batch);

}  // namespace andrea
