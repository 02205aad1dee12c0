#include "engine/model/model.h"

#include <algorithm>
#include <cstring>

namespace andrea {
namespace {

// Keys of the recorded work: steps are 0..steps_in_flight-1, decoding of S sequences is kDecodeKey + S.
constexpr std::int64_t kDecodeKey = 1000;

}  // namespace

template <class T>
T* Model::buffer(const std::string& name) const {
  return reinterpret_cast<T*>(arena_ + plan_.entry(name).offset);
}

act_t* Model::at(act_t* base, std::int64_t element) const {
  return reinterpret_cast<act_t*>(reinterpret_cast<char*>(base) +
                                  element * static_cast<std::int64_t>(ops_.act_bytes()));
}

const act_t* Model::weight(std::int64_t arena_offset) const {
  if (compute_weights_ != nullptr) return at(compute_weights_, arena_offset);
  return reinterpret_cast<const act_t*>(params_ + arena_offset);
}

void* Model::take_host(std::int64_t bytes) {
  void* memory = host_ + host_used_;
  host_used_ += (bytes + 255) / 256 * 256;
  return memory;
}

Model::Model(const ModelShape& shape, const MemoryPlan& plan, Backend& backend)
    : shape_(shape), plan_(plan), device_(*backend.device), ops_(*backend.ops) {
  arena_ = static_cast<char*>(device_.allocate(static_cast<std::size_t>(plan_.device_bytes)));
  try {
    host_ = static_cast<char*>(device_.allocate_host(static_cast<std::size_t>(plan_.host_bytes)));
  } catch (...) {
    device_.release(arena_);
    throw;
  }
  ops_.set_scratch(buffer<void>("scratch"), static_cast<std::size_t>(plan_.entry("scratch").bytes));
  Extent extent = extent_of(shape_, plan_.request.batch);
  extent.keep_factors = plan_.keeps_factors;
  if (ops_.kept_bytes(extent) > 0) ops_.set_kept(buffer<void>("kept"), extent);

  params_ = buffer<float>("params");
  const bool training = plan_.request.training;
  grads_ = training ? buffer<float>("grads") : nullptr;
  m_ = training ? buffer<float>("m") : nullptr;
  v_ = training ? buffer<float>("v") : nullptr;
  compute_weights_ = ops_.needs_compute_weights() ? buffer<act_t>("compute_weights") : nullptr;

  // A buffer that all layers share stands once in the plan, under index 0.
  const std::int64_t rows = plan_.request.batch * shape_.context;
  const bool norms = plan_.shares_norms(), gelu = plan_.shares_gelu(), whole = plan_.shares_layers();
  float* stats = buffer<float>("ln_stats");
  act_t* residual = buffer<act_t>("residual");
  for (std::int64_t l = 0; l < shape_.n_layer; ++l) {
    const auto layer = [&](const char* name, bool shared) {
      return std::string(name) + "." + std::to_string(shared ? 0 : l);
    };
    LayerBuffers b{};
    b.input = at(residual, l * rows * shape_.d_model);
    b.ln1 = buffer<act_t>(layer("ln1", norms));
    b.qkv = buffer<act_t>(layer("qkv", whole));
    b.lse = buffer<float>(layer("lse", whole));
    b.att = buffer<act_t>(layer("att", whole));
    b.mid = buffer<act_t>(layer("mid", whole));
    b.ln2 = buffer<act_t>(layer("ln2", norms));
    b.h = buffer<act_t>(layer("h", whole));
    b.g = buffer<act_t>(layer("g", gelu));
    b.mean1 = stats + (4 * l + 0) * rows;
    b.rstd1 = stats + (4 * l + 1) * rows;
    b.mean2 = stats + (4 * l + 2) * rows;
    b.rstd2 = stats + (4 * l + 3) * rows;
    layers_.push_back(b);
  }
  output_ = at(residual, shape_.n_layer * rows * shape_.d_model);
  mean_f_ = stats + 4 * shape_.n_layer * rows;
  rstd_f_ = mean_f_ + rows;
  lnf_ = buffer<act_t>("lnf");
  logits_ = buffer<act_t>("logits");
  logits_float_ = buffer<float>("logits_float");
  losses_ = buffer<float>("losses");
  d_residual_ = training ? buffer<act_t>("d_residual") : nullptr;
  d_branch_ = lnf_;  // the head's backward pass has read LNf's output by the time it writes its gradient
  d_qkv_ = training ? buffer<act_t>("d_qkv") : nullptr;
  inputs_ = buffer<std::int32_t>("inputs");
  targets_ = buffer<std::int32_t>("targets");
  row_losses_ = buffer<float>("row_losses");
  partials_ = buffer<double>("partials");
  control_ = buffer<StepControl>("control");
  status_ = buffer<StepStatus>("status");

  const std::int64_t step_rows = plan_.request.batch * plan_.request.micro_batches;
  for (std::int64_t slot = 0; slot < plan_.request.steps_in_flight; ++slot) {
    Staging s{};
    s.inputs = static_cast<std::int32_t*>(take_host(2 * step_rows * shape_.context * 4));
    s.targets = s.inputs + step_rows * shape_.context;
    s.row_losses = static_cast<float*>(take_host(step_rows * 4));
    s.control = static_cast<StepControl*>(take_host(sizeof(StepControl)));
    s.status = static_cast<StepStatus*>(take_host(sizeof(StepStatus)));
    staging_.push_back(s);
  }
  transfer_ = static_cast<char*>(take_host(plan_.transfer_bytes));
  if (plan_.request.host_snapshot) snapshot_ = static_cast<float*>(take_host(3 * shape_.arena_size * 4));

  // Padding must be zero for ever: parameters and moments are zeroed once, gradients are written as zeros.
  for (float* p : {params_, grads_, m_, v_})
    if (p != nullptr) device_.fill_zero(p, sizeof(float) * static_cast<std::size_t>(shape_.arena_size));
  set_loss_scale(1, 0);
}

Model::~Model() {
  try {
    device_.wait();
  } catch (const std::exception&) {
    // The device is lost already; its memory goes with it.
  }
  device_.release_host(host_);
  device_.release(arena_);
}

float* Model::arena(Arena which) const {
  switch (which) {
    case Arena::kWeights:
      return params_;
    case Arena::kGradients:
      return grads_;
    case Arena::kM:
      return m_;
    case Arena::kV:
      return v_;
  }
  return nullptr;
}

void Model::set_arena(Arena which, const float* host) {
  char* device = reinterpret_cast<char*>(arena(which));
  const std::int64_t bytes = shape_.arena_size * 4;
  for (std::int64_t done = 0; done < bytes; done += plan_.transfer_bytes) {
    const auto n = static_cast<std::size_t>(std::min(plan_.transfer_bytes, bytes - done));
    std::memcpy(transfer_, reinterpret_cast<const char*>(host) + done, n);
    device_.upload(device + done, transfer_, n);
    device_.wait();
  }
  if (which == Arena::kWeights && compute_weights_ != nullptr) {
    ops_.k_cast_weights(compute_weights_, params_, shape_.n_matrix);
    device_.wait();
  }
}

void Model::get_arena(Arena which, std::int64_t begin, std::int64_t n, float* host) {
  const char* device = reinterpret_cast<const char*>(arena(which) + begin);
  const std::int64_t bytes = n * 4;
  for (std::int64_t done = 0; done < bytes; done += plan_.transfer_bytes) {
    const auto piece = static_cast<std::size_t>(std::min(plan_.transfer_bytes, bytes - done));
    device_.download(transfer_, device + done, piece);
    device_.wait();
    std::memcpy(reinterpret_cast<char*>(host) + done, transfer_, piece);
  }
}

Model::Snapshot Model::take_snapshot() {
  if (snapshot_ == nullptr) return {params_, m_, v_};
  const std::int64_t n = shape_.arena_size;
  float* part = snapshot_;
  for (const float* from : {params_, m_, v_}) {
    device_.snapshot(part, from, static_cast<std::size_t>(n) * sizeof(float));
    part += n;
  }
  return {snapshot_, snapshot_ + n, snapshot_ + 2 * n};
}

void Model::set_loss_scale(float scale, std::int32_t good_steps) {
  StepStatus status{};
  status.loss_scale = status.step_loss_scale = scale;
  status.good_steps = good_steps;
  std::memcpy(transfer_, &status, sizeof status);
  device_.upload(status_, transfer_, sizeof status);
  device_.wait();
}

// ---- forward: one batch from ids to logits

void Model::forward(const std::int32_t* ids, std::int64_t B, std::int64_t T) {
  const std::int64_t rows = B * T, d = shape_.d_model;
  act_t* first = shape_.n_layer > 0 ? layers_[0].input : output_;
  ops_.k_embed_fwd(first, ids, weight(shape_.tok_embed), weight(shape_.pos_embed), B, T, d);
  for (std::int64_t l = 0; l < shape_.n_layer; ++l) forward_layer(l, B, T);
  ops_.k_layernorm_fwd(lnf_, mean_f_, rstd_f_, output_, vector(shape_.lnf_gamma), vector(shape_.lnf_beta),
                       rows, d);
  ops_.k_head_fwd(logits_, lnf_, weight(shape_.head), rows, d, shape_.vocab_pad);
}

void Model::forward_layer(std::int64_t l, std::int64_t B, std::int64_t T) {
  const std::int64_t rows = B * T, d = shape_.d_model;
  const LayerOffsets& w = shape_.layers[static_cast<std::size_t>(l)];
  const LayerBuffers& b = layers_[static_cast<std::size_t>(l)];
  act_t* output = l + 1 < shape_.n_layer ? layers_[static_cast<std::size_t>(l + 1)].input : output_;

  // x = x + attn(LN1(x))
  ops_.k_layernorm_fwd(b.ln1, b.mean1, b.rstd1, b.input, vector(w.ln1_gamma), vector(w.ln1_beta), rows, d);
  ops_.k_attn_qkv_fwd(b.qkv, b.ln1, weight(w.w_qkv), rows, d);
  ops_.k_attn_fwd(b.att, b.lse, b.qkv, B, T, shape_.n_head, shape_.head_dim);
  ops_.k_attn_out_fwd(b.mid, b.att, weight(w.w_o), b.input, rows, d);
  // x = x + mlp(LN2(x))
  ops_.k_layernorm_fwd(b.ln2, b.mean2, b.rstd2, b.mid, vector(w.ln2_gamma), vector(w.ln2_beta), rows, d);
  ops_.k_mlp_fwd(output, b.h, b.g, b.ln2, weight(w.w_1), weight(w.w_2), b.mid, rows, d);
}

// ---- backward: from dlogits (in logits_) to the gradient of every parameter

void Model::backward(const std::int32_t* ids, std::int64_t B, std::int64_t T, bool accumulate) {
  const std::int64_t rows = B * T, d = shape_.d_model;
  ops_.k_head_bwd(d_branch_, gradient(shape_.head), logits_, lnf_, weight(shape_.head), rows, d,
                  shape_.vocab_pad, accumulate);
  ops_.k_layernorm_bwd(d_residual_, gradient(shape_.lnf_gamma), gradient(shape_.lnf_beta), d_branch_, output_,
                       vector(shape_.lnf_gamma), mean_f_, rstd_f_, rows, d, /*add_to_dx=*/false, accumulate);
  for (std::int64_t l = shape_.n_layer - 1; l >= 0; --l) backward_layer(l, B, T, accumulate);
  // A tied table already holds the head's gradient.
  ops_.k_embed_bwd(gradient(shape_.tok_embed), gradient(shape_.pos_embed), d_residual_, ids, B, T, d,
                   shape_.vocab,
                   /*accumulate_tok=*/accumulate || shape_.tied, accumulate);
}

void Model::backward_layer(std::int64_t l, std::int64_t B, std::int64_t T, bool accumulate) {
  const std::int64_t rows = B * T, d = shape_.d_model;
  const LayerOffsets& w = shape_.layers[static_cast<std::size_t>(l)];
  const LayerBuffers& b = layers_[static_cast<std::size_t>(l)];
  // The whole forward pass, done again, brings the others back with it.
  const bool cheap = plan_.request.recompute == Recompute::kCheap;
  const bool gelu = cheap || plan_.request.recompute == Recompute::kGelu;

  if (plan_.request.recompute == Recompute::kLayer) forward_layer(l, B, T);
  if (cheap)
    ops_.k_layernorm_fwd(b.ln2, b.mean2, b.rstd2, b.mid, vector(w.ln2_gamma), vector(w.ln2_beta), rows, d);
  // d_residual_ is the gradient of the layer's output; the branch's share is added to it by LN2's twin. The
  // gradient of h takes h's place.
  ops_.k_mlp_bwd(d_branch_, gradient(w.w_1), gradient(w.w_2), b.h, d_residual_, b.ln2, b.h, b.g,
                 weight(w.w_1), weight(w.w_2), rows, d, /*recompute_g=*/gelu, accumulate);
  ops_.k_layernorm_bwd(d_residual_, gradient(w.ln2_gamma), gradient(w.ln2_beta), d_branch_, b.mid,
                       vector(w.ln2_gamma), b.mean2, b.rstd2, rows, d, /*add_to_dx=*/true, accumulate);

  ops_.k_attn_out_bwd(d_branch_, gradient(w.w_o), d_residual_, b.att, weight(w.w_o), rows, d, accumulate);
  ops_.k_attn_bwd(d_qkv_, d_branch_, b.att, b.qkv, b.lse, B, T, shape_.n_head, shape_.head_dim);
  if (cheap)
    ops_.k_layernorm_fwd(b.ln1, b.mean1, b.rstd1, b.input, vector(w.ln1_gamma), vector(w.ln1_beta), rows, d);
  ops_.k_attn_qkv_bwd(d_branch_, gradient(w.w_qkv), d_qkv_, b.ln1, weight(w.w_qkv), rows, d, accumulate);
  ops_.k_layernorm_bwd(d_residual_, gradient(w.ln1_gamma), gradient(w.ln1_beta), d_branch_, b.input,
                       vector(w.ln1_gamma), b.mean1, b.rstd1, rows, d, /*add_to_dx=*/true, accumulate);
}

// ---- one optimizer step

void Model::queue_step(int slot, const std::int32_t* ids, const StepControl& control) {
  const std::int64_t B = plan_.request.batch, T = shape_.context, micro_batches = plan_.request.micro_batches;
  const std::int64_t step_rows = B * micro_batches;
  Staging& s = staging_[static_cast<std::size_t>(slot)];
  *s.control = control;
  for (std::int64_t row = 0; row < step_rows; ++row) {
    std::memcpy(s.inputs + row * T, ids + row * (T + 1), sizeof(std::int32_t) * static_cast<std::size_t>(T));
    std::memcpy(s.targets + row * T, ids + row * (T + 1) + 1,
                sizeof(std::int32_t) * static_cast<std::size_t>(T));
  }

  device_.run(slot, [&] {
    const auto id_bytes = static_cast<std::size_t>(step_rows * T) * sizeof(std::int32_t);
    device_.upload(inputs_, s.inputs, id_bytes);
    device_.upload(targets_, s.targets, id_bytes);
    device_.upload(control_, s.control, sizeof control);

    // The mean over all rows of the step, so that gradients come out averaged over micro-batches.
    const float scale = static_cast<float>(1.0 / static_cast<double>(step_rows * T));
    for (std::int64_t micro = 0; micro < micro_batches; ++micro) {
      const std::int32_t* inputs = inputs_ + micro * B * T;
      forward(inputs, B, T);
      ops_.k_loss_fwd_bwd(losses_, logits_, targets_ + micro * B * T, scale, status_, B * T, shape_.vocab,
                          shape_.vocab_pad);
      ops_.k_row_loss(row_losses_ + micro * B, losses_, B, T);
      backward(inputs, B, T, /*accumulate=*/micro > 0);
    }

    const std::int64_t n = shape_.arena_size;
    ops_.k_grad_norm_partial(partials_, grads_, n);
    ops_.k_grad_norm_final(status_, partials_, ops_.grad_norm_partials(n), row_losses_, step_rows, control_);
    device_.await_snapshots();  // the one thing a checkpoint in the making holds up
    ops_.k_adamw(params_, m_, v_, compute_weights_, grads_, control_, status_, n, shape_.n_matrix,
                 compute_weights_ != nullptr ? shape_.n_matrix : 0);

    device_.download(s.status, status_, sizeof(StepStatus));
    device_.download(s.row_losses, row_losses_, static_cast<std::size_t>(step_rows) * sizeof(float));
  });
  device_.mark(slot);
}

StepStatus Model::read_step(int slot, float* row_losses) {
  device_.wait_mark(slot);
  const Staging& s = staging_[static_cast<std::size_t>(slot)];
  std::copy(s.row_losses, s.row_losses + plan_.request.batch * plan_.request.micro_batches, row_losses);
  return *s.status;
}

// ---- without training

void Model::upload_rows(const std::int32_t* ids, std::int64_t B, std::int64_t width, std::int64_t T) {
  Staging& s = staging_[0];
  for (std::int64_t row = 0; row < B; ++row) {
    for (std::int64_t t = 0; t < T; ++t) {
      s.inputs[row * T + t] = ids[row * width + t];
      if (width > T) s.targets[row * T + t] = ids[row * width + t + 1];
    }
  }
  const auto bytes = static_cast<std::size_t>(B * T) * sizeof(std::int32_t);
  device_.upload(inputs_, s.inputs, bytes);
  if (width > T) device_.upload(targets_, s.targets, bytes);
}

void Model::losses(const std::int32_t* ids, std::int64_t B, std::int64_t T, float* losses) {
  upload_rows(ids, B, T + 1, T);
  forward(inputs_, B, T);
  ops_.k_loss_fwd(losses_, logits_, targets_, B * T, shape_.vocab, shape_.vocab_pad);
  const std::int64_t chunk = plan_.transfer_bytes / 4;
  for (std::int64_t done = 0; done < B * T; done += chunk) {
    const auto bytes = static_cast<std::size_t>(std::min(chunk, B * T - done)) * sizeof(float);
    device_.download(transfer_, losses_ + done, bytes);
    device_.wait();
    std::memcpy(losses + done, transfer_, bytes);
  }
}

void Model::logits(const std::int32_t* ids, std::int64_t B, std::int64_t T, float* out) {
  upload_rows(ids, B, T, T);
  forward(inputs_, B, T);
  const std::int64_t Vp = shape_.vocab_pad, V = shape_.vocab, rows = B * T;
  const std::int64_t chunk = std::max<std::int64_t>(1, std::min(kLogitRows, plan_.transfer_bytes / (Vp * 4)));
  for (std::int64_t row = 0; row < rows; row += chunk) {
    const std::int64_t n = std::min(chunk, rows - row);
    ops_.k_cast_to_float(logits_float_, at(logits_, row * Vp), n * Vp);
    device_.download(transfer_, logits_float_, static_cast<std::size_t>(n * Vp) * sizeof(float));
    device_.wait();
    const float* from = reinterpret_cast<const float*>(transfer_);
    for (std::int64_t i = 0; i < n; ++i) std::copy(from + i * Vp, from + i * Vp + V, out + (row + i) * V);
  }
}

// ---- generation

void Model::decode_layers(std::int64_t S) {
  const std::int64_t d = shape_.d_model, H = shape_.n_head, hd = shape_.head_dim;
  act_t *x = buffer<act_t>("decode.x"), *mid = buffer<act_t>("decode.mid"), *ln = buffer<act_t>("decode.ln");
  act_t *qkv = buffer<act_t>("decode.qkv"), *att = buffer<act_t>("decode.att");
  act_t *h = buffer<act_t>("decode.h"), *g = buffer<act_t>("decode.g"), *kv_cache = buffer<act_t>("kv_cache");
  float *mean = buffer<float>("decode.stats"), *rstd = mean + S;
  const std::int32_t *ids = buffer<std::int32_t>("decode.input"), *position = ids + S;

  ops_.k_embed_decode_fwd(x, ids, position, weight(shape_.tok_embed), weight(shape_.pos_embed), S, d);
  for (std::int64_t l = 0; l < shape_.n_layer; ++l) {
    const LayerOffsets& w = shape_.layers[static_cast<std::size_t>(l)];
    ops_.k_layernorm_fwd(ln, mean, rstd, x, vector(w.ln1_gamma), vector(w.ln1_beta), S, d);
    ops_.k_attn_qkv_fwd(qkv, ln, weight(w.w_qkv), S, d);
    ops_.k_attn_decode_fwd(att, at(kv_cache, l * 2 * S * shape_.context * d), qkv, position, S,
                           shape_.context, H, hd);
    ops_.k_attn_out_fwd(mid, att, weight(w.w_o), x, S, d);
    ops_.k_layernorm_fwd(ln, mean, rstd, mid, vector(w.ln2_gamma), vector(w.ln2_beta), S, d);
    ops_.k_mlp_fwd(x, h, g, ln, weight(w.w_1), weight(w.w_2), mid, S, d);
  }
  ops_.k_layernorm_fwd(ln, mean, rstd, x, vector(shape_.lnf_gamma), vector(shape_.lnf_beta), S, d);
  act_t* logits = buffer<act_t>("decode.logits");
  ops_.k_head_fwd(logits, ln, weight(shape_.head), S, d, shape_.vocab_pad);
  ops_.k_cast_to_float(buffer<float>("decode.logits_float"), logits, S * shape_.vocab_pad);
}

void Model::decode(const std::int32_t* ids, std::int64_t S, std::int32_t position, float* logits) {
  // The transfer buffer holds the input in front, then the logits [S, Vp].
  auto* input = reinterpret_cast<std::int32_t*>(transfer_);
  const float* from = reinterpret_cast<const float*>(transfer_ + plan_.decode_input_bytes());
  std::copy(ids, ids + S, input);
  input[S] = position;
  device_.run(kDecodeKey + S, [&] {
    device_.upload(buffer<std::int32_t>("decode.input"), input,
                   static_cast<std::size_t>(S + 1) * sizeof(std::int32_t));
    decode_layers(S);
    device_.download(transfer_ + plan_.decode_input_bytes(), buffer<float>("decode.logits_float"),
                     static_cast<std::size_t>(S * shape_.vocab_pad) * sizeof(float));
  });
  device_.wait();
  for (std::int64_t s = 0; s < S; ++s, from += shape_.vocab_pad, logits += shape_.vocab)
    std::copy(from, from + shape_.vocab, logits);
}

}  // namespace andrea
