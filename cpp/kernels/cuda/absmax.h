// Where the largest magnitude of a tensor is kept for FP8.
#pragma once

#include <cstdint>

namespace andrea::cuda {

/// In device memory, zero before the tensor is written. Kernels that write the tensor raise it (absmax.cuh),
/// those that cast it to FP8 read it.
struct Absmax {
  std::uint32_t bits;  ///< of the largest magnitude, as a float
};

/// Elements of a weight tensor that share one entry of the table AdamW writes.
constexpr std::int64_t kAbsmaxPiece = 4096;

}  // namespace andrea::cuda
