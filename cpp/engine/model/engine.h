// The engine: an experiment made ready to train. What Python and the trainer hold.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/experiment.h"
#include "engine/data/loader.h"
#include "engine/model/model.h"
#include "kernels/backend.h"

namespace andrea {

struct EngineOptions {
  std::string device = "auto";    ///< cpu, cuda, auto
  int threads = 0;                ///< CPU threads; 0: all cores of this process. Never changes the bits.
  std::int64_t memory_bytes = 0;  ///< budget for the plan; 0: what is free on the device now
  bool training = true;        ///< false: weights only, about a quarter of the memory; cannot train or save
  std::int64_t sequences = 1;  ///< texts that generate() writes at once, 1..kMostSequences
  std::function<void(const std::string&)> on_plan;  ///< sees the plan's text before anything is allocated
};
constexpr std::int64_t kMostSequences = 1024;

/// What a run would need, found without allocating anything and without opening data.
struct PlanReport {
  std::string text;  ///< for people
  std::string json;
  bool fits = false;
};
/// A device or precision that is not here is planned too, by the rules of the CUDA back end; the text says
/// so. Without EngineOptions::memory_bytes such a plan has nothing to fit into: then `fits` is true.
PlanReport plan_report(const Experiment& experiment, const EngineOptions& options);

/// What make_backend() and a plan are asked for an experiment; without a device, of a CUDA device.
BackendRequest backend_request(const Experiment& experiment, const EngineOptions& options);
PlanRequest plan_request(const Experiment& experiment, const Device* device);
/// Learning rate, bias corrections and so on of 0-based `step`.
StepControl step_control(const TrainConfig& train, std::int64_t step);

/// What one finished step says.
struct StepReport {
  std::int64_t step = 0;  ///< 0-based
  float loss = 0;         ///< mean over the step's rows, nats
  float grad_norm = 0;    ///< global L2, averaged over micro-batches, unscaled, before clipping
  double lr = 0;
  float loss_scale = 1;            ///< of this step
  bool applied = true;             ///< false: something was not finite and the update was skipped
  bool scale_halved = false;       ///< skipped because the loss scale was too high
  std::int64_t fp8_saturated = 0;  ///< values beyond what FP8 holds: none while scales are right
  std::vector<Row> rows;
};

/// Learning rate of 0-based step t: cosine over train.steps times the linear warm-up (docs/EXPERIMENT.md).
double learning_rate(const TrainConfig& train, std::int64_t step);

/// Choice of the next token.
struct Sampling {
  double temperature = 0.8;         ///< 0: the most likely token
  std::int64_t top_k = 40;          ///< 0: all
  double top_p = 1.0;               ///< smallest set of tokens with this much probability
  double repetition_penalty = 1.0;  ///< divides the odds of ids already present; 1: off
  std::uint32_t seed = 42;
  std::uint64_t nonce = 0;  ///< tells samples of one seed apart
};
/// One draw for logits [V]: random number `index` of the sample. ConfigError for impossible settings.
std::int32_t choose_token(const float* logits, std::int64_t vocab, const Sampling& sampling,
                          std::uint64_t index, const std::vector<std::int32_t>& previous);

/// One text to be written: `n` new ids after the prompt.
struct GenerationRequest {
  std::vector<std::int32_t> prompt;  ///< BOS is put before it; may be empty where the vocabulary has BOS
  std::int64_t n = 0;
  Sampling sampling;
};
/// Sees each new id with the number of its request; false ends that text. Id -1 means that prompts are still
/// being read: false then ends all.
using OnToken = std::function<bool(std::size_t, std::int32_t)>;

class Engine {
 public:
  /// Makes the back end, the memory plan (OutOfMemory if it does not fit) and the initial weights. Opens no
  /// data.
  Engine(const Experiment& experiment, const EngineOptions& options);
  ~Engine();

  const Experiment& experiment() const { return experiment_; }
  const ModelShape& shape() const { return shape_; }
  const MemoryPlan& plan() const { return model_->plan(); }
  DeviceInfo device_info() const { return backend_.device->info(); }
  const std::string& note() const { return backend_.note; }
  std::int64_t available_bytes() const { return available_bytes_; }

  /// Finished steps (queued ones not counted) = index of the next.
  std::int64_t steps_done() const { return steps_done_; }
  std::int64_t rows_per_step() const;

  /// One step on the next rows of the loader. Opens the data at the first call (see loader()).
  StepReport step();
  /// One step on ids [rows_per_step, T+1]; ids out of range: DataError.
  StepReport train_batch(const std::int32_t* ids);
  /// The same in two halves, so that the device need not wait for the host: at most
  /// Device::steps_in_flight() steps may be queued.
  void queue_step(std::vector<Row> rows, const std::int32_t* ids);
  StepReport finish_step();
  std::size_t steps_queued() const { return queued_.size(); }
  int steps_in_flight() const { return backend_.device->steps_in_flight(); }

  /// Opens and verifies every source of the experiment (DataError), once. The weights are the constant
  /// policy's, uniform where the policy is a bandit, until set_source_weights().
  Loader& loader();
  bool data_open() const { return loader_ != nullptr; }
  /// By name, ConfigError for an unknown one; sources not named keep theirs.
  void set_source_weights(const std::vector<std::pair<std::string, double>>& weights);

  /// Mean loss in nats of ids [B, T+1], any B, T <= context. DataError for ids out of range.
  double loss(const std::int32_t* ids, std::int64_t B, std::int64_t T);
  /// Mean loss of each row: out [B].
  void row_losses(const std::int32_t* ids, std::int64_t B, std::int64_t T, double* out);
  /// Logits [B, T, V] of ids [B, T].
  void logits(const std::int32_t* ids, std::int64_t B, std::int64_t T, float* out);
  /// The same as generation sees them: token after token through the cache, B <= EngineOptions::sequences.
  void decode_logits(const std::int32_t* ids, std::int64_t B, std::int64_t T, float* out);

  /// The new ids of each request. EngineOptions::sequences of them are written at once, with the same result
  /// as one by one: exactly on the CPU up to 8, else up to the rounding of a product of another shape.
  /// When the context is full, the last context/2 ids are kept and read again; of a longer prompt too.
  /// A text alone that begins like the one before, as a conversation does, is read from where they differ.
  std::vector<std::vector<std::int32_t>> generate(const std::vector<GenerationRequest>& requests,
                                                  const OnToken& on_token = {});
  /// The same for one text. `keep_going`, called after each token with it (-1: still reading), may stop.
  std::vector<std::int32_t> generate(const std::vector<std::int32_t>& prompt, std::int64_t n,
                                     const Sampling& sampling,
                                     const std::function<bool(std::int32_t)>& keep_going = {});

  /// One tensor in canonical shape, by name. Gradients: of the last step, averaged, unscaled, before
  /// clipping.
  std::vector<float> get_parameter(const std::string& name);
  std::vector<float> get_gradient(const std::string& name);
  /// Replaces the named tensors ({name, values}); sizes are checked before anything changes (ConfigError).
  void set_parameters(const std::vector<std::pair<std::string, std::vector<float>>>& tensors);

  /// Checkpoint layout, n_params floats each: what step_NNNNNN.bin holds.
  struct Weights {
    std::vector<float> weights, m, v;
  };
  Weights export_weights();
  void import_weights(const Weights& weights, std::int64_t steps_done);
  /// Writes a snapshot as step_NNNNNN.bin; may run in another thread. Returns the hash of the file.
  Model::Snapshot take_snapshot();
  bool snapshot_is_a_copy() const { return model_->snapshot_is_a_copy(); }
  std::uint64_t write_snapshot(const Model::Snapshot& snapshot, std::int64_t step, const std::string& path);
  /// A .bin alone: weights, moments and step; the loader's position is not in it.
  void save(const std::string& path);
  void load(const std::string& path);

  float loss_scale() const { return loss_scale_; }
  std::int32_t good_steps() const { return good_steps_; }
  void set_loss_scale(float scale, std::int32_t good_steps);

 private:
  struct Queued {
    std::int64_t step;
    int slot;
    double lr;
    std::vector<Row> rows;
  };
  void check_ids(const std::int32_t* ids, std::int64_t n) const;
  void require_idle(const char* what) const;
  void require_no_generation(const char* what) const;
  void require_training(const char* what) const;
  /// Moves *next past the ids that the cache holds already; returns how many.
  std::int64_t skip_cached(const std::vector<std::int32_t>& ids, std::size_t* next) const;
  std::vector<float> get_tensor(Model::Arena arena, const std::string& name);

  Experiment experiment_;
  ModelShape shape_;
  Backend backend_;
  std::int64_t available_bytes_ = 0;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Loader> loader_;
  std::deque<Queued> queued_;
  std::int64_t steps_done_ = 0;
  float loss_scale_ = 1;
  std::int32_t good_steps_ = 0;
  float last_step_loss_scale_ = 1;
  bool generating_ = false;           // its cache lies where a step has its logits
  std::vector<std::int32_t> cached_;  // what the cache of keys and values holds of one text alone
};

}  // namespace andrea
