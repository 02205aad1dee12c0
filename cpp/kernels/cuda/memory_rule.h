// What the CUDA back end takes besides the model's own buffers, by rule: plain arithmetic on shapes, compiled
// everywhere, so that a plan for a GPU that is not here equals the plan on it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"

namespace andrea::cuda {

/// Memory that every matrix product may use while it runs, on every GPU.
constexpr std::size_t kGemmWorkspaceBytes = std::size_t{32} << 20;
/// CudaDevice::steps_in_flight().
constexpr int kStepsInFlight = 2;

/// Bytes of an activation.
std::int64_t activation_bytes(Precision precision);
/// Ops::scratch_bytes(): the largest need of any operation; they use it one after the other.
std::int64_t scratch_bytes_by_rule(const Extent& extent, Precision precision);
/// Ops::kept_bytes().
std::int64_t kept_bytes_by_rule(const Extent& extent, Precision precision);

/// Sizes of an FP8 product must be multiples of this.
constexpr std::int64_t kFp8Multiple = 16;
/// Of the linear layer with the largest factors: gradient in both layouts, input and weights.
std::int64_t fp8_scratch_bytes(const Extent& extent);
/// Tensors whose largest magnitude is kept.
std::int64_t fp8_absmaxes(const Extent& extent);
/// CudaOps::grad_norm_partials().
std::int64_t grad_norm_partials_by_rule(std::int64_t n);

}  // namespace andrea::cuda
