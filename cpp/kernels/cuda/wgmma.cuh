// Warpgroup products of Hopper (sm_90a): 128 threads multiply [64, 16] by [16, N] with the second operand, or
// both, straight from swizzled shared memory (PTX ISA, "Asynchronous warpgroup level matrix instructions").
//
// The layout of Tile in mma.cuh is the hardware's own: rows of 64 elements are its 128-byte swizzle, rows of
// 32 its 64-byte swizzle. Warp w of the warpgroup holds rows 16 w .. 16 w + 15 of a [64, N] result, and in
// them each lane the same elements as in the C tiles of mma.cuh: two neighbours, rounded, are an A operand.
//
// A product runs beside the code after it until wait_products: until then its registers and tiles belong to
// it. Tiles filled by threads are seen by it only after publish_tiles and a barrier.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/mma.cuh"

namespace andrea::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define ANDREA_HOPPER_CODE 1
#endif

/// Where rows of kWidth elements begin, for the hardware: `bytes` behind the beginning of 8 rows of a tile.
/// Written as one sum, so that the descriptors of a product differ by an addition.
template <int kWidth>
__device__ __forceinline__ std::uint64_t tile_descriptor(std::uint32_t address, int bytes = 0) {
  static_assert(kWidth == 32 || kWidth == 64, "a row is one swizzle span");
  constexpr std::uint32_t kGroupBytes = 8 * kWidth * 2;  // from 8 rows to the next 8
  constexpr std::uint32_t kSwizzle = kWidth == 64 ? 1 : 2;
  const std::uint32_t low = (address >> 4) + (1U << 16) + static_cast<std::uint32_t>(bytes) / 16;
  constexpr std::uint64_t kHigh = std::uint64_t{kGroupBytes >> 4} | std::uint64_t{kSwizzle} << 30;
  return kHigh << 32 | low;
}

/// c [64, kN] (+)= a b^T with a, b rows of 16-bit elements in shared memory (by_rows), or c += a b with a in
/// registers and b [16, kN] rows of the sum's index (by_columns).
template <typename T, int kN>
struct Wgmma;

#ifdef ANDREA_HOPPER_CODE
#define ANDREA_C4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define ANDREA_C16(i) ANDREA_C4(i), ANDREA_C4(i + 1), ANDREA_C4(i + 2), ANDREA_C4(i + 3)
#define ANDREA_D16 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
#define ANDREA_D32                                                                                      \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26," \
  "%27,%28,%29,%30,%31}"
#define ANDREA_WGMMA(T, NAME)                                                                          \
  template <>                                                                                          \
  struct Wgmma<T, 32> {                                                                                \
    __device__ __forceinline__ static void by_rows(float (&c)[4][4], std::uint64_t a, std::uint64_t b, \
                                                   int add) {                                          \
      asm volatile(                                                                                    \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32." NAME \
          "." NAME " " ANDREA_D16 ", %16, %17, p, 1, 1, 0, 0;\n}"                                      \
          : ANDREA_C16(0)                                                                              \
          : "l"(a), "l"(b), "r"(add));                                                                 \
    }                                                                                                  \
    __device__ __forceinline__ static void by_columns(float (&c)[4][4], const std::uint32_t (&a)[4],   \
                                                      std::uint64_t b) {                               \
      asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32." NAME "." NAME " " ANDREA_D16          \
                   ", {%16,%17,%18,%19}, %20, 1, 1, 1, 1;"                                             \
                   : ANDREA_C16(0)                                                                     \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                              \
    }                                                                                                  \
  };                                                                                                   \
  template <>                                                                                          \
  struct Wgmma<T, 64> {                                                                                \
    __device__ __forceinline__ static void by_rows(float (&c)[8][4], std::uint64_t a, std::uint64_t b, \
                                                   int add) {                                          \
      asm volatile(                                                                                    \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32." NAME \
          "." NAME " " ANDREA_D32 ", %32, %33, p, 1, 1, 0, 0;\n}"                                      \
          : ANDREA_C16(0), ANDREA_C16(4)                                                               \
          : "l"(a), "l"(b), "r"(add));                                                                 \
    }                                                                                                  \
    __device__ __forceinline__ static void by_columns(float (&c)[8][4], const std::uint32_t (&a)[4],   \
                                                      std::uint64_t b) {                               \
      asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." NAME "." NAME " " ANDREA_D32          \
                   ", {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"                                             \
                   : ANDREA_C16(0), ANDREA_C16(4)                                                      \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                              \
    }                                                                                                  \
  };
ANDREA_WGMMA(__half, "f16")
ANDREA_WGMMA(__nv_bfloat16, "bf16")
#undef ANDREA_WGMMA
#undef ANDREA_D32
#undef ANDREA_D16
#undef ANDREA_C16
#undef ANDREA_C4

/// Before a product whose registers were written by other code.
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/// Ends a group of products.
__device__ __forceinline__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most kPending groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
/// Shared memory written by this thread is seen by products that begin after the next barrier.
__device__ __forceinline__ void publish_tiles() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// Keeps the compiler from reading a result before the wait above it.
template <int kN>
__device__ __forceinline__ void settled(float (&c)[kN][4]) {
#pragma unroll
  for (int n = 0; n < kN; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(c[n][i])::"memory");
}

/// c [64, 64] = rows [64, kWidth] tile [64, kWidth]^T: addresses of tiles, or of 64 rows in one.
template <typename T, int kWidth>
__device__ __forceinline__ void start_scores(float (&c)[8][4], std::uint32_t rows, std::uint32_t tile) {
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k)
    Wgmma<T, 64>::by_rows(c, tile_descriptor<kWidth>(rows, 32 * k), tile_descriptor<kWidth>(tile, 32 * k),
                          k != 0);
  commit_products();
}

/// A result [64, 64], rounded, as the A operand of four products.
template <typename T>
__device__ __forceinline__ void pack_weights(std::uint32_t (&weights)[4][4], const float (&s)[8][4]) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    weights[k][0] = pack<T>(s[2 * k][0], s[2 * k][1]);
    weights[k][1] = pack<T>(s[2 * k][2], s[2 * k][3]);
    weights[k][2] = pack<T>(s[2 * k + 1][0], s[2 * k + 1][1]);
    weights[k][3] = pack<T>(s[2 * k + 1][2], s[2 * k + 1][3]);
  }
}

/// acc [64, kWidth] += weights [64, 64] (packed) tile [64, kWidth].
template <typename T, int kWidth>
__device__ __forceinline__ void start_sums(float (&acc)[kWidth / 8][4], const std::uint32_t (&weights)[4][4],
                                           std::uint32_t tile) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
    Wgmma<T, kWidth>::by_columns(acc, weights[k], tile_descriptor<kWidth>(tile, 16 * k * kWidth * 2));
  commit_products();
}
#endif  // ANDREA_HOPPER_CODE

}  // namespace andrea::cuda
