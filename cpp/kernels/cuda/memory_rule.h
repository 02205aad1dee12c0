// What the CUDA back end takes besides the model's own buffers, by rule: plain arithmetic on shapes, compiled
// everywhere, so that a plan for a GPU that is not here equals the plan on it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"

namespace andrea::cuda {

/// Memory that every matrix product may use while it runs, on every GPU.
constexpr std::size_t kGemmWorkspaceBytes = std::size_t{32} << 20;
/// What attention takes: sequences of a micro-batch, and heads.
constexpr std::int64_t kMostSequences = 65535;
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
/// A factor of n elements, with its scale behind it.
constexpr std::int64_t kFp8FactorAlignment = 256;
std::int64_t fp8_factor_bytes(std::int64_t n);
/// Of the linear layer with the largest factors: gradient in both layouts, input and weights.
std::int64_t fp8_scratch_bytes(const Extent& extent);
/// Tensors that one pass writes with their largest magnitude, forward, backward and what is computed again.
std::int64_t fp8_absmaxes(const Extent& extent);
/// Weights that are factors of FP8 products.
std::int64_t fp8_weights(const Extent& extent);
/// What the forward pass keeps for the backward one if extent.keep_factors: inputs and weights of the linear
/// layers. 0 where the number of rows is not for FP8.
std::int64_t fp8_kept_factor_bytes(const Extent& extent);
/// CudaOps::grad_norm_partials().
std::int64_t grad_norm_partials_by_rule(std::int64_t n);

}  // namespace andrea::cuda
