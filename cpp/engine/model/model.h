// The model: one forward pass and one backward pass, written once against kernels/ops.h.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/model/plan.h"
#include "engine/model/shape.h"
#include "kernels/backend.h"

namespace andrea {

/// Weights, gradients, moments and activations in one device allocation, and the passes over them.
/// Not thread-safe. Everything is queued on the device's stream; see Device.
class Model {
 public:
  /// Allocates `plan` on the device. Parameters are undefined until set_arena(). A plan without training has
  /// weights only: what needs gradients or moments must not be called.
  Model(const ModelShape& shape, const MemoryPlan& plan, Backend& backend);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelShape& shape() const { return shape_; }
  const MemoryPlan& plan() const { return plan_; }

  /// Arenas of arena_size floats, through the host. Blocking.
  enum class Arena { kWeights, kGradients, kM, kV };
  void set_arena(Arena which, const float* host);
  void get_arena(Arena which, float* host) { get_arena(which, 0, shape_.arena_size, host); }
  /// Only the n floats from `begin` on.
  void get_arena(Arena which, std::int64_t begin, std::int64_t n, float* host);

  /// Weights, m and v of this moment in arena layout, for a checkpoint. On the CPU they are the
  /// arenas themselves, which the next step changes; elsewhere a copy, valid after wait_snapshot(), until the
  /// next.
  struct Snapshot {
    const float *weights, *m, *v;
  };
  Snapshot take_snapshot();
  bool snapshot_is_a_copy() const { return !device_.host_readable(); }
  void wait_snapshot() { device_.wait_snapshots(); }

  /// Persistent loss scale (1 for fp32 and bf16). Blocking.
  void set_loss_scale(float scale, std::int32_t good_steps);

  /// Queues one optimizer step. `slot` numbers the staging buffers, 0..steps_in_flight-1, and is free again
  /// once read_step(slot) returned. ids: [micro_batches*B, T+1].
  void queue_step(int slot, const std::int32_t* ids, const StepControl& control);
  /// Waits for that step. row_losses: [micro_batches*B].
  StepStatus read_step(int slot, float* row_losses);

  /// Losses without training: ids [B, T+1] with B <= plan batch and T <= context; losses [B*T] in nats.
  /// Blocking.
  void losses(const std::int32_t* ids, std::int64_t B, std::int64_t T, float* losses);
  /// Logits: ids [B, T]; out [B, T, V]. Blocking.
  void logits(const std::int32_t* ids, std::int64_t B, std::int64_t T, float* out);

  /// Generation, one token of each sequence at a time, with a cache of keys and values. Its buffers are its
  /// own: it never touches training. decode() takes the tokens ids [S] at `position` (0..context-1) of
  /// S <= plan sequences and returns logits [S, V] for the next. The cache of one S is not that of another.
  void decode(const std::int32_t* ids, std::int64_t S, std::int32_t position, float* logits);

 private:
  // Where the plan's buffers are: what one layer keeps from forward to backward ...
  struct LayerBuffers {
    act_t* input;  // [rows, d] residual stream before the layer
    act_t *ln1, *qkv, *att, *mid, *ln2, *h, *g;
    float *mean1, *rstd1, *mean2, *rstd2, *lse;
  };
  // ... and what a step in flight keeps on the host.
  struct Staging {
    std::int32_t *inputs, *targets;  // [micro_batches*B, T]
    StepControl* control;
    StepStatus* status;
    float* row_losses;  // [micro_batches*B]
  };

  template <class T>
  T* buffer(const std::string& name) const;
  act_t* at(act_t* base, std::int64_t element) const;
  const act_t* weight(std::int64_t arena_offset) const;
  const float* vector(std::int64_t arena_offset) const { return params_ + arena_offset; }
  float* gradient(std::int64_t arena_offset) const { return grads_ + arena_offset; }
  void* take_host(std::int64_t bytes);
  float* arena(Arena which) const;

  void forward(const std::int32_t* ids, std::int64_t B, std::int64_t T);
  void forward_layer(std::int64_t layer, std::int64_t B, std::int64_t T);
  void backward(const std::int32_t* ids, std::int64_t B, std::int64_t T, bool accumulate);
  void backward_layer(std::int64_t layer, std::int64_t B, std::int64_t T, bool accumulate);
  void decode_layers(std::int64_t S);
  void upload_rows(const std::int32_t* ids, std::int64_t B, std::int64_t width, std::int64_t T);

  ModelShape shape_;
  MemoryPlan plan_;
  Device& device_;
  Ops& ops_;
  char* arena_ = nullptr;  // the one device allocation
  char* host_ = nullptr;   // the one host allocation
  std::int64_t host_used_ = 0;
  char* transfer_ = nullptr;   // plan.transfer_bytes of it
  float* snapshot_ = nullptr;  // [3, arena_size] of it; null where the host reads device memory

  float *params_, *grads_, *m_, *v_;  // the last three are null without training
  act_t* compute_weights_;            // 16-bit copies of the matrices; null in fp32
  std::vector<LayerBuffers> layers_;
  act_t *output_, *lnf_, *logits_, *d_residual_, *d_branch_, *d_qkv_;
  float *mean_f_, *rstd_f_, *losses_, *row_losses_, *logits_float_;
  double* partials_;
  std::int32_t *inputs_, *targets_;
  StepControl* control_;
  StepStatus* status_;
  std::vector<Staging> staging_;
};

}  // namespace andrea
