// Which of cuBLASLt's kernels for sm_90 takes the least time, by a rule: plain arithmetic on shapes, compiled
// everywhere, and never a timing at run time, so that equal shapes mean equal bits.
//
// A product is made of tiles, one a multiprocessor at a time: it takes as many waves as the tiles fill, and
// each wave as long as one tile. What a tile costs is a constant and a slope over the summed index, fitted to
// measurements of every kernel (docs/KERNELS.md, "Matrix products"). The library's heuristic often takes
// large tiles that leave its last wave nearly empty, or whose stores no arithmetic overlaps.
#pragma once

#include <cstdint>
#include <optional>

namespace andrea::cuda {

/// A kernel of algorithm 66, in the library's own numbers (cublasLtMatmulAlgoConfigAttributes_t).
struct GemmConfiguration {
  std::uint32_t tile;  ///< cublasLtMatmulTile_t
  std::int32_t split_k;
  std::uint32_t option;   ///< "custom option"
  std::uint16_t cluster;  ///< cublasLtClusterShape_t
};

/// Products whose kernels cost differently. Forward ones with and without an addend; in 16 bits also
/// dx = dy W and dW = dy^T x. For the FP8 gradients the library's choice is within 1 % of the best.
enum class GemmCosts { kForward, kForwardAdd, kInput, kWeight, kForward8, kForwardAdd8 };

/// For out [m, n] summed over k: the configuration expected to take less time than the library's own, whose
/// tile and split are given; nothing where the library's is good enough, unknown, or the product is small.
std::optional<GemmConfiguration> better_configuration(GemmCosts costs, std::int64_t m, std::int64_t n,
                                                      std::int64_t k, int multiprocessors,
                                                      std::uint32_t library_tile, std::int32_t library_split);

}  // namespace andrea::cuda
