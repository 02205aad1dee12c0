#include "kernels/cuda/memory_rule.h"

#include <algorithm>

#include "kernels/cuda/absmax.h"

namespace andrea::cuda {
namespace {

// The constants of the kernels; tests/cpp/kernels/memory_rule_test.cpp holds the two beside each other.
constexpr std::int64_t kEmbedChunk = 256, kEmbedSegment = 32;        // embed.cu
constexpr std::int64_t kLayerNormBlocks = 264;                       // layernorm.cu
constexpr std::int64_t kAttentionTile = 32;                          // attention_fp32.cu
constexpr std::int64_t kNormPiece = 4096, kMostNormPartials = 1056;  // optimizer.cu

std::int64_t pieces(std::int64_t n, std::int64_t piece) { return (n + piece - 1) / piece; }
std::int64_t padded_words(std::int64_t n) { return (n * 4 + 255) / 256 * 256; }

std::int64_t embed_backward(std::int64_t rows, std::int64_t d, std::int64_t V) {
  return 3 * padded_words(rows) + padded_words(V) + padded_words(pieces(rows, kEmbedChunk) * V) +
         padded_words(pieces(rows, kEmbedSegment) * d);
}

}  // namespace

std::int64_t activation_bytes(Precision precision) { return precision == Precision::kFp32 ? 4 : 2; }

std::int64_t fp8_scratch_bytes(const Extent& extent) {
  const std::int64_t rows = extent.batch * extent.context, d = extent.d_model;
  return static_cast<std::int64_t>(kGemmWorkspaceBytes) + rows * (2 * 4 * d + d) + 4 * d * d +
         4 * fp8_factor_bytes(0);
}

std::int64_t fp8_factor_bytes(std::int64_t n) {
  return pieces(n, kFp8FactorAlignment) * kFp8FactorAlignment + kFp8FactorAlignment;
}

std::int64_t fp8_absmaxes(const Extent& extent) { return 12 * extent.n_layer + 16; }

std::int64_t fp8_weights(const Extent& extent) { return 4 * extent.n_layer + 16; }

std::int64_t fp8_kept_factor_bytes(const Extent& extent) {
  const std::int64_t rows = extent.batch * extent.context, d = extent.d_model;
  if (!extent.keep_factors || rows % kFp8Multiple != 0 || d % kFp8Multiple != 0) return 0;
  std::int64_t bytes = 0;
  for (const std::int64_t columns : {d, d, d, 4 * d}) bytes += fp8_factor_bytes(rows * columns);
  for (const std::int64_t weights : {3 * d * d, d * d, 4 * d * d, 4 * d * d})
    bytes += fp8_factor_bytes(weights);
  return extent.n_layer * bytes;
}

std::int64_t kept_bytes_by_rule(const Extent& extent, Precision precision) {
  if (precision != Precision::kFp8) return 0;
  constexpr auto kWord = static_cast<std::int64_t>(sizeof(std::uint32_t));
  return fp8_kept_factor_bytes(extent) +
         (fp8_absmaxes(extent) + fp8_weights(extent)) * static_cast<std::int64_t>(sizeof(Absmax)) + kWord +
         pieces(extent.n_params, kAbsmaxPiece) * kWord;
}

std::int64_t scratch_bytes_by_rule(const Extent& extent, Precision precision) {
  const std::int64_t rows = extent.batch * extent.context;
  const std::int64_t casts = precision == Precision::kFp8 ? fp8_scratch_bytes(extent) : 0;
  return std::max({static_cast<std::int64_t>(kGemmWorkspaceBytes), casts,
                   embed_backward(rows, extent.d_model, extent.vocab),
                   kLayerNormBlocks * 2 * extent.d_model * 4,
                   // attention's backward pass: delta, and the turns of dQ's tiles
                   4 * extent.n_head * (rows + extent.batch * pieces(extent.context, kAttentionTile)) + 4});
}

std::int64_t grad_norm_partials_by_rule(std::int64_t n) {
  return std::clamp<std::int64_t>(pieces(n, kNormPiece), 1, kMostNormPartials);
}

}  // namespace andrea::cuda
