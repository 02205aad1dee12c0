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
  /// Allocates `plan` on the device. Parameters are undefined until set_parameters().
  Model(const ModelShape& shape, const MemoryPlan& plan, Backend& backend);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelShape& shape() const { return shape_; }
  const MemoryPlan& plan() const { return plan_; }

  /// Arenas of arena_size floats, through the host. Blocking.
  enum class Arena { kWeights, kGradients, kM, kV };
  void set_arena(Arena which, const float* host);
  void get_arena(Arena which, float* host);

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

  /// Generation, one token at a time, with a cache of keys and values. Its buffers are its own: it never
  /// touches training. decode() takes the token at `position` (0..context-1) and returns logits [V] for the
  /// next.
  void decode(std::int32_t id, std::int32_t position, float* logits);

 private:
  struct Staging;
  template <class T>
  T* buffer(const std::string& name, std::int64_t element = 0);
  const act_t* weight(std::int64_t arena_offset) const;
  float* gradient(std::int64_t arena_offset) const { return grads_ + arena_offset; }
  act_t* layer_buffer(const char* name, std::int64_t layer);

  void forward(const std::int32_t* ids, std::int64_t B, std::int64_t T);
  void forward_layer(std::int64_t layer, std::int64_t B, std::int64_t T, bool write_output);
  void backward(const std::int32_t* ids, std::int64_t B, std::int64_t T, bool accumulate);
  void backward_layer(std::int64_t layer, std::int64_t B, std::int64_t T, bool accumulate);
  act_t* residual(std::int64_t layer, std::int64_t rows_d = 0);
  void refresh_compute_weights();
  void stage_ids(const std::int32_t* ids, std::int64_t rows, std::int64_t T, std::int32_t* inputs,
                 std::int32_t* targets) const;

  ModelShape shape_;
  MemoryPlan plan_;
  Device& device_;
  Ops& ops_;
  char* arena_ = nullptr;
  float* params_ = nullptr;
  act_t* compute_ = nullptr;  // 16-bit copies of the matrices; params_ itself in fp32
  float* grads_ = nullptr;
  std::vector<Staging> staging_;
  float* host_logits_ = nullptr;
};

}  // namespace andrea
