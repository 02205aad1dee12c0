// The kernels that FP8 adds: largest magnitudes, casts to E4M3, GELU that leaves its largest magnitude.
// A tensor's FP8 numbers are value * 2^e, e from its own largest magnitude (absmax.cuh): a power of two costs
// no rounding, and no value goes beyond 448.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/absmax.h"

namespace andrea::cuda {

/// One E4M3 number: sign, 4 bits of exponent, 3 of mantissa; largest 448, no infinity.
using fp8_t = unsigned char;

/// What a cast writes: numbers [rows, cols] and transposed [cols, rows] (either may be null), and what they
/// are to be multiplied by.
struct Fp8Out {
  fp8_t* numbers;
  fp8_t* transposed;
  float* inverse_scale;
};
/// x [rows, cols] in E4M3, scaled by the largest magnitude in *absmax. Both sizes are multiples of 16,
/// pointers are aligned to 16 bytes. Values beyond 448, which would saturate, are added to *saturated: there
/// are none as long as *absmax is the tensor's own.
void cast_to_fp8(const Fp8Out& out, const __nv_bfloat16* x, const Absmax* absmax, std::uint32_t* saturated,
                 std::int64_t rows, std::int64_t cols, cudaStream_t stream);
/// The same of gelu(h), rounded to bfloat16 first: what a cast of gelu_with_absmax's g gives.
void cast_gelu_to_fp8(const Fp8Out& out, const __nv_bfloat16* h, const Absmax* absmax,
                      std::uint32_t* saturated, std::int64_t rows, std::int64_t cols, cudaStream_t stream);

// Those that raise *absmax want it zero before.

/// *absmax of x [n], for tensors whose writer did not leave it. n is a multiple of 8.
void find_absmax(Absmax* absmax, const __nv_bfloat16* x, std::int64_t n, cudaStream_t stream);

/// A weight tensor inside the arena of compute weights, in elements.
struct WeightPlace {
  std::int64_t offset, n;
  Absmax* absmax;
};
/// Absmax of every weight in the list from the largest magnitudes of pieces of kAbsmaxPiece elements that
/// their writer left; what lies in a piece with another tensor is read from the arena.
void weights_absmax(const std::vector<WeightPlace>& places, const __nv_bfloat16* arena,
                    const std::uint32_t* pieces, cudaStream_t stream);

/// g = gelu(h), n elements (a multiple of 8); with g null only its largest magnitude is found.
void gelu_with_absmax(__nv_bfloat16* g, Absmax* absmax, const __nv_bfloat16* h, std::int64_t n,
                      cudaStream_t stream);
/// dh = dg * gelu'(h), and g = gelu(h) if g_absmax is not null. dh may be h or dg, g may be dg.
void gelu_backward_with_absmax(__nv_bfloat16* dh, Absmax* dh_absmax, __nv_bfloat16* g, Absmax* g_absmax,
                               const __nv_bfloat16* dg, const __nv_bfloat16* h, std::int64_t n,
                               cudaStream_t stream);

/// *total = *counter, *counter = 0.
void take_count(std::int32_t* total, std::uint32_t* counter, cudaStream_t stream);

}  // namespace andrea::cuda
