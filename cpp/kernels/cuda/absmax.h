// Where the largest magnitude of a tensor is kept for FP8.
#pragma once

#include <cstdint>

namespace andrea::cuda {

/// In device memory, zero at first. Kernels that write a tensor set it (absmax.cuh), those that cast it to
/// FP8 and the products read it.
struct alignas(16) Absmax {
  float inverse_scale;    ///< 2^-e: a value is its FP8 number times this
  std::uint32_t largest;  ///< bits of the largest magnitude
  std::uint32_t running;  ///< of the blocks that have ended so far
  std::uint32_t finished;
};

/// Elements of a weight tensor that share one entry of the table AdamW writes.
constexpr std::int64_t kAbsmaxPiece = 4096;

}  // namespace andrea::cuda
