#include "engine/model/shape.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/errors.h"
#include "engine/hash/philox.h"

namespace andrea {
namespace {

constexpr std::int64_t kAlignment = 64;  // floats

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace

ModelShape::ModelShape(const ModelConfig& config)
    : d_model(config.d_model),
      n_head(config.n_head),
      n_layer(config.n_layer),
      context(config.context),
      vocab(config.vocab_size),
      vocab_pad(round_up(config.vocab_size, kVocabMultiple)),
      head_dim(config.d_model / config.n_head),
      tied(config.tie_embeddings) {
  const std::int64_t d = d_model;
  const double residual_std = 0.02 / std::sqrt(2.0 * static_cast<double>(n_layer));

  const auto matrix = [this](const std::string& name, std::int64_t rows, std::int64_t cols, double std) {
    ParamSpec spec;
    spec.name = name, spec.rows = spec.rows_pad = rows, spec.cols = cols, spec.init_std = std;
    params.push_back(spec);
  };
  const auto vector = [this](const std::string& name, float value) {
    ParamSpec spec;
    spec.name = name, spec.rows = spec.rows_pad = 1, spec.cols = d_model, spec.init_value = value;
    spec.is_vector = true;
    params.push_back(spec);
  };

  matrix("tok_embed", vocab, d, 1.0 / std::sqrt(static_cast<double>(d)));
  params.back().rows_pad = vocab_pad;
  matrix("pos_embed", context, d, 0.02);
  for (std::int64_t l = 0; l < n_layer; ++l) {
    const std::string layer = "layers." + std::to_string(l) + ".";
    vector(layer + "ln1.gamma", 1);
    vector(layer + "ln1.beta", 0);
    for (const char* w : {"w_q", "w_k", "w_v"}) matrix(layer + w, d, d, 0.02);
    matrix(layer + "w_o", d, d, residual_std);
    vector(layer + "ln2.gamma", 1);
    vector(layer + "ln2.beta", 0);
    matrix(layer + "w_1", 4 * d, d, 0.02);
    matrix(layer + "w_2", d, 4 * d, residual_std);
  }
  vector("lnf.gamma", 1);
  vector("lnf.beta", 0);
  if (!tied) {
    matrix("head", vocab, d, 0.02);
    params.back().rows_pad = vocab_pad;
  }

  // Arena: matrices first, then vectors.
  for (const bool vectors : {false, true}) {
    for (ParamSpec& spec : params) {
      if (spec.is_vector != vectors) continue;
      const std::string& name = spec.name;
      const bool joined = name.size() > 4 && (name.compare(name.size() - 4, 4, ".w_k") == 0 ||
                                              name.compare(name.size() - 4, 4, ".w_v") == 0);
      if (!joined) arena_size = round_up(arena_size, kAlignment);
      spec.offset = arena_size;
      arena_size += spec.rows_pad * spec.cols;
    }
    arena_size = round_up(arena_size, kAlignment);
    if (!vectors) n_matrix = arena_size;
  }
  for (ParamSpec& spec : params) {
    spec.file_offset = n_params;
    n_params += spec.size();
  }

  tok_embed = param("tok_embed").offset;
  pos_embed = param("pos_embed").offset;
  lnf_gamma = param("lnf.gamma").offset;
  lnf_beta = param("lnf.beta").offset;
  head = tied ? tok_embed : param("head").offset;
  // A layer is ten specs in a row, as pushed above.
  for (std::int64_t l = 0; l < n_layer; ++l) {
    const ParamSpec* p = &params[static_cast<std::size_t>(2 + 10 * l)];
    layers.push_back({p[0].offset, p[1].offset, p[2].offset, p[5].offset, p[6].offset, p[7].offset,
                      p[8].offset, p[9].offset});
  }
}

const ParamSpec& ModelShape::param(const std::string& name) const {
  for (const ParamSpec& spec : params)
    if (spec.name == name) return spec;
  throw ConfigError("no parameter is named \"" + name +
                    "\"; names are tok_embed, pos_embed, layers.0.ln1.gamma, layers.0.w_q, ..., lnf.beta" +
                    (tied ? " (the head is tied to tok_embed)" : ", head"));
}

double ModelShape::flops(std::int64_t tokens) const {
  const double d = static_cast<double>(d_model), T = static_cast<double>(context);
  const double products =
      static_cast<double>(n_params) - T * d - (tied ? 0.0 : static_cast<double>(vocab) * d);
  return static_cast<double>(tokens) * (6 * products + 6 * static_cast<double>(n_layer) * d * T);
}

void arena_to_file(const ModelShape& shape, const float* arena, float* file) {
  for (const ParamSpec& spec : shape.params)
    std::memcpy(file + spec.file_offset, arena + spec.offset,
                sizeof(float) * static_cast<std::size_t>(spec.size()));
}

void file_to_arena(const ModelShape& shape, const float* file, float* arena) {
  std::fill(arena, arena + shape.arena_size, 0.0F);
  for (const ParamSpec& spec : shape.params)
    std::memcpy(arena + spec.offset, file + spec.file_offset,
                sizeof(float) * static_cast<std::size_t>(spec.size()));
}

std::vector<float> initial_parameters(const ModelShape& shape, std::uint32_t seed) {
  std::vector<float> arena(static_cast<std::size_t>(shape.arena_size), 0.0F);
  for (std::size_t i = 0; i < shape.params.size(); ++i) {
    const ParamSpec& spec = shape.params[i];
    float* out = arena.data() + spec.offset;
    const std::int64_t n = spec.size();
    if (spec.is_vector) {
      std::fill(out, out + n, spec.init_value);
      continue;
    }
    const Philox philox(seed, kInitTensor + static_cast<std::uint32_t>(i));
    constexpr double kTwoPi = 6.283185307179586476925;
#pragma omp parallel for schedule(static)
    for (std::int64_t pair = 0; pair < (n + 1) / 2; ++pair) {
      const auto w = philox.at(static_cast<std::uint64_t>(pair));
      // 1 - u lies in (0, 1]: the logarithm is finite.
      const double radius = spec.init_std * std::sqrt(-2.0 * std::log(1.0 - Philox::uniform(w[0], w[1])));
      const double angle = kTwoPi * Philox::uniform(w[2], w[3]);
      out[2 * pair] = static_cast<float>(radius * std::cos(angle));
      if (2 * pair + 1 < n) out[2 * pair + 1] = static_cast<float>(radius * std::sin(angle));
    }
  }
  return arena;
}

}  // namespace andrea
