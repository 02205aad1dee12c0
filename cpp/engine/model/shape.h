// The tensors of a model: names, shapes and order in the checkpoint, and where each lies in the parameter
// arena.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/experiment.h"

namespace andrea {

/// One parameter tensor. `offset` counts floats in the arena, `file_offset` floats in the checkpoint.
struct ParamSpec {
  std::string name;  ///< "tok_embed", "layers.0.w_q", "lnf.beta"
  std::int64_t rows = 0;
  std::int64_t cols = 0;      ///< 1-D tensors: rows = 1
  std::int64_t rows_pad = 0;  ///< rows in the arena; the additional ones are zero always
  std::int64_t offset = 0;
  std::int64_t file_offset = 0;
  double init_std = 0;   ///< standard deviation; 0: constant init_value
  float init_value = 0;  ///< 1 for gamma, 0 for beta
  bool is_vector = false;

  std::int64_t size() const { return rows * cols; }
};

/// Offsets of one layer's tensors in the arena. w_q, w_k, w_v lie one behind the other: w_qkv [3d, d].
struct LayerOffsets {
  std::int64_t ln1_gamma, ln1_beta, w_qkv, w_o, ln2_gamma, ln2_beta, w_1, w_2;
};

/// Parameters in canonical order (docs/CHECKPOINT.md). The arena holds the matrices first, which decay, then
/// the vectors, which do not; every tensor begins at a multiple of 64 floats, but for w_k and w_v.
class ModelShape {
 public:
  explicit ModelShape(const ModelConfig& config);

  std::int64_t d_model, n_head, n_layer, context, vocab, vocab_pad;
  std::int64_t head_dim;
  bool tied;

  std::vector<ParamSpec> params;  ///< canonical order
  std::vector<LayerOffsets> layers;
  std::int64_t tok_embed, pos_embed, lnf_gamma, lnf_beta, head;  ///< arena offsets; head = tok_embed if tied

  std::int64_t n_params = 0;    ///< exact, without padding: what the checkpoint holds
  std::int64_t arena_size = 0;  ///< floats of one arena (weights, gradients, m or v), with padding
  std::int64_t n_matrix = 0;    ///< floats of its leading part that holds the matrices

  const ParamSpec& param(const std::string& name) const;  ///< ConfigError names the nearest if there is none
  /// Floating-point operations of a step over `tokens` tokens: 6 per parameter (position table left out) and
  /// token for the products, 6 L d T per token for causal attention counted half.
  double flops(std::int64_t tokens) const;
};

/// Arena layout <-> checkpoint layout (n_params floats).
void arena_to_file(const ModelShape& shape, const float* arena, float* file);
void file_to_arena(const ModelShape& shape, const float* file, float* arena);

/// Initial weights in arena layout: normal deviates by Box-Muller in double from Philox stream 256 + i for
/// the i-th tensor, rounded to float. The same bits whatever the back end and the number of threads.
std::vector<float> initial_parameters(const ModelShape& shape, std::uint32_t seed);

}  // namespace andrea
