#include "engine/model/engine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "engine/errors.h"
#include "engine/run/checkpoint_file.h"
#include "engine/run/policy.h"
#include "kernels/cuda/memory_rule.h"

namespace andrea {
namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr float kInitialLossScale = 32768;  // 2^15
constexpr std::int32_t kGrowthInterval = 2000;

PlanRequest plan_request(const Experiment& experiment, const EngineOptions& options, const Device* device) {
  if (options.sequences < 1 || options.sequences > kMostSequences)
    throw ConfigError("sequences: must be 1 to " + std::to_string(kMostSequences) + ", is " +
                      std::to_string(options.sequences));
  PlanRequest request = plan_request(experiment, device);
  request.training = options.training;
  request.sequences = options.sequences;
  request.host_snapshot = request.host_snapshot && options.training;
  return request;
}

double mean(const float* values, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += values[i];
  return sum / static_cast<double>(n);
}

}  // namespace

double learning_rate(const TrainConfig& train, std::int64_t step) {
  const double t = static_cast<double>(step);
  const double cosine = train.lr.min + (train.lr.peak - train.lr.min) / 2 *
                                           (1 + std::cos(kPi * t / static_cast<double>(train.steps)));
  if (train.lr.warmup_steps <= 0) return cosine;
  return cosine * std::min(1.0, (t + 1) / static_cast<double>(train.lr.warmup_steps));
}

BackendRequest backend_request(const Experiment& experiment, const EngineOptions& options) {
  return {options.device, experiment.train.precision, experiment.train.allow_tf32, options.threads};
}

PlanRequest plan_request(const Experiment& experiment, const Device* device) {
  PlanRequest request;
  request.batch = experiment.train.batch_size;
  request.micro_batches = experiment.train.micro_batches;
  request.precision = experiment.train.precision;
  request.steps_in_flight = device != nullptr ? device->steps_in_flight() : cuda::kStepsInFlight;
  request.host_snapshot = device == nullptr || !device->host_readable();
  for (const Recompute level : kRecomputeLevels)
    if (experiment.train.recompute == recompute_key(level)) request.fixed_level = level;
  return request;
}

StepControl step_control(const TrainConfig& train, std::int64_t step) {
  const double t = static_cast<double>(step + 1);
  StepControl control{};
  control.learning_rate = static_cast<float>(learning_rate(train, step));
  control.beta1 = static_cast<float>(train.adamw.beta1);
  control.beta2 = static_cast<float>(train.adamw.beta2);
  control.eps = static_cast<float>(train.adamw.eps);
  control.weight_decay = static_cast<float>(train.adamw.weight_decay);
  control.bias_correction1 = static_cast<float>(1 - std::pow(train.adamw.beta1, t));
  control.bias_correction2 = static_cast<float>(1 - std::pow(train.adamw.beta2, t));
  control.clip_norm = static_cast<float>(train.clip_norm);
  control.loss_scale_growth_interval = train.precision == Precision::kFp16 ? kGrowthInterval : 0;
  return control;
}

namespace {

void check_limits(const Experiment& experiment, bool on_cuda) {
  if (on_cuda && experiment.train.batch_size > cuda::kMostSequences)
    throw ConfigError("train.batch_size: CUDA attention takes at most " +
                      std::to_string(cuda::kMostSequences) + " sequences, not " +
                      std::to_string(experiment.train.batch_size) + "; raise micro_batches instead");
  constexpr std::int64_t kMultiple = cuda::kFp8Multiple;
  if (experiment.train.precision == Precision::kFp8 && experiment.model.d_model % kMultiple != 0)
    throw ConfigError("train.precision: \"fp8\" needs a model.d_model that is a multiple of " +
                      std::to_string(kMultiple) + ", not " + std::to_string(experiment.model.d_model) +
                      "; use fp16 or bf16");
}

}  // namespace

PlanReport plan_report(const Experiment& experiment, const EngineOptions& options) {
  const ModelShape shape(experiment.model);
  // A device that is not here is planned by the rules of its back end.
  Backend backend;
  std::string note;
  try {
    backend = make_backend(backend_request(experiment, options));
  } catch (const Error& error) {
    note = std::string("  (") + error.what() + ";\n   planned by the rules of the CUDA back end)\n";
  }
  const bool here = backend.device != nullptr;
  const bool on_cuda = !here || backend.device->info().backend == "cuda";
  check_limits(experiment, on_cuda);
  const NeedsOfBatch needs =
      here ? backend_needs(shape, *backend.ops) : cuda_needs(shape, experiment.train.precision);
  const PlanRequest request = plan_request(experiment, options, backend.device.get());
  std::int64_t available = options.memory_bytes;
  if (available == 0 && here) available = static_cast<std::int64_t>(backend.device->info().free_bytes);
  const bool known = available > 0;
  const std::int64_t budget = known ? available : INT64_MAX;
  const MemoryPlan plan = closest_plan(shape, request, needs, budget);
  const std::int64_t largest = known ? largest_batch(shape, request, needs, budget) : 0;
  PlanReport report;
  report.fits = plan.device_bytes <= budget;
  report.text = describe_plan(shape, plan, available) + note;
  if (known)
    report.text += std::string("  ") + (report.fits ? "fits" : "DOES NOT FIT") +
                   "; the largest batch_size that fits is " + std::to_string(largest) + "\n";
  else
    report.text += "  how much there is, is not known without the device: give --memory, such as 24GB\n";
  if (on_cuda) report.text += "  the CUDA context, its kernels and cuBLASLt take memory beside the plan\n";
  report.json = plan_json(shape, plan, available, largest);
  return report;
}

Engine::Engine(const Experiment& experiment, const EngineOptions& options)
    : experiment_(experiment),
      shape_(experiment.model),
      backend_(make_backend(backend_request(experiment, options))) {
  check_limits(experiment, device_info().backend == "cuda");
  if (shape_.n_params > INT32_MAX)
    throw ConfigError("model: " + std::to_string(shape_.n_params) +
                      " parameters, but a checkpoint counts them in 32 bits (at most 2147483647)");
  available_bytes_ =
      options.memory_bytes > 0 ? options.memory_bytes : static_cast<std::int64_t>(device_info().free_bytes);
  const PlanRequest request = plan_request(experiment_, options, backend_.device.get());
  const MemoryPlan plan = fit_plan(shape_, request, backend_needs(shape_, *backend_.ops), available_bytes_);
  if (options.on_plan) options.on_plan(describe_plan(shape_, plan, available_bytes_));
  model_ = std::make_unique<Model>(shape_, plan, backend_);
  model_->set_arena(Model::Arena::kWeights, initial_parameters(shape_, experiment_.train.seed).data());
  set_loss_scale(experiment_.train.precision == Precision::kFp16 ? kInitialLossScale : 1, 0);
}

Engine::~Engine() = default;

std::int64_t Engine::rows_per_step() const {
  return experiment_.train.batch_size * experiment_.train.micro_batches;
}

void Engine::check_ids(const std::int32_t* ids, std::int64_t n) const {
  for (std::int64_t i = 0; i < n; ++i)
    if (ids[i] < 0 || ids[i] >= shape_.vocab)
      throw DataError("id " + std::to_string(ids[i]) + " at flat index " + std::to_string(i) +
                      " is outside the vocabulary (0.." + std::to_string(shape_.vocab - 1) + ")");
}

void Engine::require_no_generation(const char* what) const {
  if (generating_)
    throw Error(std::string(what) +
                ": a text is being generated, and this would use its memory; end it first");
}

void Engine::require_idle(const char* what) const {
  if (!queued_.empty())
    throw Error(std::string(what) + ": a training step is still queued; call finish_step() first");
}

void Engine::require_training(const char* what) const {
  if (!plan().request.training)
    throw ConfigError(std::string(what) + ": this engine was made to read a model (training = false)");
}

// ---- training

void Engine::queue_step(std::vector<Row> rows, const std::int32_t* ids) {
  require_no_generation("queue_step");
  require_training("queue_step");
  if (static_cast<int>(queued_.size()) >= steps_in_flight())
    throw Error("queue_step: " + std::to_string(queued_.size()) +
                " steps are queued already; call finish_step() first");
  cached_.clear();  // made with weights that the step changes
  const std::int64_t step = steps_done_ + static_cast<std::int64_t>(queued_.size());
  const int slot = static_cast<int>(step % steps_in_flight());
  model_->queue_step(slot, ids, step_control(experiment_.train, step));
  queued_.push_back({step, slot, learning_rate(experiment_.train, step), std::move(rows)});
}

StepReport Engine::finish_step() {
  if (queued_.empty()) throw Error("finish_step: no step is queued");
  Queued queued = std::move(queued_.front());
  queued_.pop_front();
  std::vector<float> losses(static_cast<std::size_t>(rows_per_step()));
  const StepStatus status = model_->read_step(queued.slot, losses.data());

  StepReport report;
  report.step = queued.step;
  report.loss = static_cast<float>(mean(losses.data(), rows_per_step()));
  report.grad_norm = status.grad_norm;
  report.lr = queued.lr;
  report.loss_scale = status.step_loss_scale;
  report.applied = status.apply != 0;
  report.scale_halved = status.scale_halved != 0;
  report.fp8_saturated = status.fp8_saturated;
  report.rows = std::move(queued.rows);
  for (std::size_t i = 0; i < report.rows.size(); ++i) report.rows[i].loss = losses[i];
  steps_done_ = queued.step + 1;
  loss_scale_ = status.loss_scale;
  good_steps_ = status.good_steps;
  last_step_loss_scale_ = status.step_loss_scale;
  return report;
}

StepReport Engine::step() {
  require_idle("step");
  Loader& data = loader();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows_per_step() * (shape_.context + 1)));
  std::vector<Row> rows = data.next(steps_done_, rows_per_step(), ids.data());
  queue_step(std::move(rows), ids.data());
  return finish_step();
}

StepReport Engine::train_batch(const std::int32_t* ids) {
  require_idle("train_batch");
  check_ids(ids, rows_per_step() * (shape_.context + 1));
  std::vector<Row> rows(static_cast<std::size_t>(rows_per_step()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].step = steps_done_;
    rows[i].row = static_cast<std::int64_t>(i);
    rows[i].source = -1;
  }
  queue_step(std::move(rows), ids);
  return finish_step();
}

// ---- data

Loader& Engine::loader() {
  if (loader_ != nullptr) return *loader_;
  if (experiment_.data.sources.empty())
    throw ConfigError(experiment_.origin +
                      ": data.sources is empty; name at least one source, or use train_batch()");
  std::vector<Loader::Source> sources;
  for (const SourceConfig& config : experiment_.data.sources) {
    BtokFile file(config.train);
    if (file.vocab_size() != shape_.vocab)
      throw DataError(config.train + ": packed for a vocabulary of " + std::to_string(file.vocab_size()) +
                      " entries, but the model has " + std::to_string(shape_.vocab) +
                      "; pack it with the tokenizer of this model, or set model.vocab_size");
    if (!sources.empty() && file.tokenizer_hash() != sources[0].file.tokenizer_hash())
      throw DataError(config.train + ": packed with another tokenizer than " + sources[0].file.path() +
                      "; pack both with the same one");
    file.verify(shape_.vocab);
    sources.push_back({config.name, std::move(file)});
  }
  auto loader = std::make_unique<Loader>(std::move(sources), experiment_.train.seed, shape_.context);
  if (experiment_.curriculum.policy == "ucb1_dice") {
    loader->set_weights(std::vector<double>(loader->sources().size(), 1.0));
  } else {
    std::vector<SourceInfo> infos;
    for (const Loader::Source& s : loader->sources())
      infos.push_back({s.name, s.file.n_docs(), s.file.n_tokens(), s.file.n_bytes()});
    loader->set_weights(make_constant_policy(experiment_, infos)->begin_phase(0, {}).weights);
  }
  loader_ = std::move(loader);
  return *loader_;
}

void Engine::set_source_weights(const std::vector<std::pair<std::string, double>>& weights) {
  Loader& data = loader();
  std::vector<double> all = data.weights();
  for (const auto& [name, weight] : weights) {
    const auto source = std::find_if(data.sources().begin(), data.sources().end(),
                                     [&name = name](const Loader::Source& s) { return s.name == name; });
    if (source == data.sources().end())
      throw ConfigError("set_source_weights: no source is named \"" + name + "\"");
    all[static_cast<std::size_t>(source - data.sources().begin())] = weight;
  }
  data.set_weights(all);
}

// ---- looking

void Engine::row_losses(const std::int32_t* ids, std::int64_t B, std::int64_t T, double* out) {
  require_idle("loss");
  require_no_generation("loss");
  cached_.clear();  // the cache lies where the logits come to lie
  if (T < 1 || T > shape_.context || B < 1)
    throw ConfigError("loss: ids must be [B >= 1, T + 1] with T from 1 to " + std::to_string(shape_.context));
  check_ids(ids, B * (T + 1));
  const std::int64_t batch = plan().request.batch;
  std::vector<float> losses(static_cast<std::size_t>(std::min(B, batch) * T));
  for (std::int64_t row = 0; row < B; row += batch) {
    const std::int64_t n = std::min(batch, B - row);
    model_->losses(ids + row * (T + 1), n, T, losses.data());
    for (std::int64_t i = 0; i < n; ++i) out[row + i] = mean(losses.data() + i * T, T);
  }
}

double Engine::loss(const std::int32_t* ids, std::int64_t B, std::int64_t T) {
  std::vector<double> rows(static_cast<std::size_t>(std::max<std::int64_t>(B, 0)));
  row_losses(ids, B, T, rows.data());
  return std::accumulate(rows.begin(), rows.end(), 0.0) / static_cast<double>(B);
}

void Engine::logits(const std::int32_t* ids, std::int64_t B, std::int64_t T, float* out) {
  require_idle("logits");
  require_no_generation("logits");
  cached_.clear();
  if (T < 1 || T > shape_.context || B < 1)
    throw ConfigError("logits: ids must be [B >= 1, T] with T from 1 to " + std::to_string(shape_.context));
  check_ids(ids, B * T);
  const std::int64_t batch = plan().request.batch;
  for (std::int64_t row = 0; row < B; row += batch)
    model_->logits(ids + row * T, std::min(batch, B - row), T, out + row * T * shape_.vocab);
}

// ---- parameters and checkpoints

std::vector<float> Engine::get_tensor(Model::Arena which, const std::string& name) {
  require_idle("parameters");
  const ParamSpec& spec = shape_.param(name);
  std::vector<float> values(static_cast<std::size_t>(spec.size()));
  model_->get_arena(which, spec.offset, spec.size(), values.data());
  return values;
}

std::vector<float> Engine::get_parameter(const std::string& name) {
  return get_tensor(Model::Arena::kWeights, name);
}

std::vector<float> Engine::get_gradient(const std::string& name) {
  require_training("gradients");
  std::vector<float> gradient = get_tensor(Model::Arena::kGradients, name);
  // Stored gradients carry the loss scale of their step, a power of two.
  for (float& g : gradient) g /= last_step_loss_scale_;
  return gradient;
}

void Engine::set_parameters(const std::vector<std::pair<std::string, std::vector<float>>>& tensors) {
  require_idle("load_parameters");
  cached_.clear();
  for (const auto& [name, values] : tensors) {
    const ParamSpec& spec = shape_.param(name);
    if (static_cast<std::int64_t>(values.size()) != spec.size())
      throw ConfigError("load_parameters: " + name + " has " + std::to_string(spec.size()) + " values, " +
                        std::to_string(values.size()) + " were given");
    const auto bad = std::find_if_not(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
    if (bad != values.end())
      throw ConfigError("load_parameters: " + name + ": element " + std::to_string(bad - values.begin()) +
                        " is not finite; no value was taken over");
  }
  std::vector<float> arena(static_cast<std::size_t>(shape_.arena_size));
  model_->get_arena(Model::Arena::kWeights, arena.data());
  for (const auto& [name, values] : tensors)
    std::copy(values.begin(), values.end(),
              arena.begin() + static_cast<std::ptrdiff_t>(shape_.param(name).offset));
  model_->set_arena(Model::Arena::kWeights, arena.data());
}

Engine::Weights Engine::export_weights() {
  require_idle("export_weights");
  require_training("export_weights");
  Weights out;
  std::vector<float> arena(static_cast<std::size_t>(shape_.arena_size));
  const std::pair<Model::Arena, std::vector<float>*> parts[] = {
      {Model::Arena::kWeights, &out.weights}, {Model::Arena::kM, &out.m}, {Model::Arena::kV, &out.v}};
  for (const auto& [which, file] : parts) {
    model_->get_arena(which, arena.data());
    file->resize(static_cast<std::size_t>(shape_.n_params));
    arena_to_file(shape_, arena.data(), file->data());
  }
  return out;
}

void Engine::import_weights(const Weights& in, std::int64_t steps_done) {
  require_idle("import_weights");
  cached_.clear();
  std::vector<float> arena(static_cast<std::size_t>(shape_.arena_size));
  const std::pair<Model::Arena, const std::vector<float>*> parts[] = {
      {Model::Arena::kWeights, &in.weights}, {Model::Arena::kM, &in.m}, {Model::Arena::kV, &in.v}};
  for (const auto& [which, file] : parts) {
    if (which != Model::Arena::kWeights && !plan().request.training) continue;
    file_to_arena(shape_, file->data(), arena.data());
    model_->set_arena(which, arena.data());
  }
  steps_done_ = steps_done;
}

Model::Snapshot Engine::take_snapshot() {
  require_idle("take_snapshot");
  require_training("save");
  return model_->take_snapshot();
}

std::uint64_t Engine::write_snapshot(const Model::Snapshot& snapshot, std::int64_t step,
                                     const std::string& path) {
  model_->wait_snapshot();
  const auto section = [this](const float* arena) {
    return [this, arena](const Sink& sink) {
      for (const ParamSpec& spec : shape_.params)
        sink(arena + spec.offset, sizeof(float) * static_cast<std::size_t>(spec.size()));
    };
  };
  return write_checkpoint(path, static_cast<std::int32_t>(step), static_cast<std::int32_t>(shape_.n_params),
                          section(snapshot.weights), section(snapshot.m), section(snapshot.v));
}

void Engine::save(const std::string& path) { write_snapshot(take_snapshot(), steps_done_, path); }

void Engine::load(const std::string& path) {
  Weights w;
  const bool moments = plan().request.training;
  const CheckpointHeader header =
      read_checkpoint(path, static_cast<std::int32_t>(shape_.n_params), &w.weights, moments ? &w.m : nullptr,
                      moments ? &w.v : nullptr, nullptr);
  import_weights(w, header.step);
}

void Engine::set_loss_scale(float scale, std::int32_t good_steps) {
  model_->set_loss_scale(scale, good_steps);
  loss_scale_ = scale;
  good_steps_ = good_steps;
}

}  // namespace andrea
