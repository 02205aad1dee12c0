// Tensor-core building blocks for 16-bit types on sm_80 and newer: tiles in swizzled shared memory, fragments
// by ldmatrix, products m16n8k16 with float32 accumulators.
//
// Fragments, lane = 4 g + c:   A [16, 16]: a0 (row g, columns 2c..), a1 (row g+8), a2 (columns +8), a3
// (both);
//                              B [16, 8]:  b0 (rows 2c.., column g), b1 (rows +8);
//                              C [16, 8]:  c0 c1 (row g, columns 2c, 2c+1), c2 c3 (row g+8).
// So two neighbouring C tiles, rounded to 16 bits, are one A fragment: the products of attention chain
// through registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace andrea::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void ldmatrix(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

__device__ __forceinline__ void ldmatrix_transposed(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

template <typename T>
__device__ __forceinline__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1);
template <>
__device__ __forceinline__ void mma<__half>(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                            std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mma<__nv_bfloat16>(float (&c)[4], const std::uint32_t (&a)[4],
                                                   std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Two floats, rounded, as one register: `low` in the low half.
template <typename T>
__device__ __forceinline__ std::uint32_t pack(float low, float high);
template <>
__device__ __forceinline__ std::uint32_t pack<__half>(float low, float high) {
  const __half2 h = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&h);
}
template <>
__device__ __forceinline__ std::uint32_t pack<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 h = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&h);
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Copies 16 (or 4) bytes to shared memory without registers; zeros if !inside.
__device__ __forceinline__ void copy_async16(std::uint32_t to, const void* from, bool inside) {
  const int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ __forceinline__ void copy_async4(std::uint32_t to, const void* from, bool inside) {
  const int bytes = inside ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;"); }
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending));
}

/// A [rows, kWidth] tile of 16-bit elements in shared memory. Chunks of 8 elements are permuted within groups
/// of rows so that the 8 rows of an ldmatrix fall into different banks.
template <int kWidth>
struct Tile {
  static constexpr int kChunks = kWidth / 8;
  /// Byte offset of chunk `chunk` of row `row`.
  __device__ __forceinline__ static std::uint32_t offset(int row, int chunk) {
    const int swizzle = kChunks >= 8 ? row & 7 : (row >> 1) & 3;
    return static_cast<std::uint32_t>(row * kWidth * 2 + ((chunk ^ swizzle) << 4));
  }
  /// A fragment: rows row..row+15, columns 16 k .. 16 k + 15.
  __device__ __forceinline__ static void load_a(std::uint32_t (&a)[4], std::uint32_t base, int row, int k,
                                                int lane) {
    ldmatrix(a, base + offset(row + (lane & 15), 2 * k + (lane >> 4)));
  }
  /// B fragments of two column tiles n, n + 8 of the transposed tile: B[i][j] = tile[j][i]. For products with
  /// tile^T, the sum running over the tile's columns 16 k ..; b[0], b[1] is tile n, b[2], b[3] is n + 8.
  __device__ __forceinline__ static void load_b(std::uint32_t (&b)[4], std::uint32_t base, int n, int k,
                                                int lane) {
    ldmatrix(b, base + offset(n + (lane & 7) + ((lane >> 4) << 3), 2 * k + ((lane >> 3) & 1)));
  }
  /// B fragments of the tile itself: B[i][j] = tile[i][j], the sum running over rows 16 k .. 16 k + 15, for
  /// columns 16 n .. 16 n + 15.
  __device__ __forceinline__ static void load_b_rows(std::uint32_t (&b)[4], std::uint32_t base, int k, int n,
                                                     int lane) {
    ldmatrix_transposed(b, base + offset(16 * k + (lane & 15), 2 * n + (lane >> 4)));
  }
};

}  // namespace andrea::cuda
