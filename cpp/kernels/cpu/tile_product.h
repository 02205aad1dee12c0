// Products of small matrices that lie in the first-level cache, for attention.
//
// c [m, n] (+)= a [m, k] b [k, n]. Rows of b and c are contiguous; element (i, l) of a is at
// a[i * a_row + l * a_column], so a may be a transposed view. A block of kBlockRows x 2 vectors of c stays in
// registers over the whole of k. The order of the sum over k is the order of l: fixed.
#pragma once

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/vec.h"

namespace andrea::ANDREA_CPU_PATH {

#if defined(__AVX512F__)
constexpr int kBlockRows = 8;
#elif defined(__AVX2__)
constexpr int kBlockRows = 6;
#else
constexpr int kBlockRows = 4;
#endif

/// What causality leaves of a square diagonal tile.
enum class Shape {
  kFull,
  kLowerC,  ///< only c[i, j <= i] is wanted; more may be written
  kLowerA,  ///< a[i, l] is zero for l > i
  kUpperA,  ///< a[i, l] is zero for l < i
};

struct View {
  const float* data;
  std::int64_t row, column;  ///< distances of neighbours
};

// R rows by C vectors of c, the last vector with `last` lanes.
template <int R, int C>
inline void product_block(float* c, std::int64_t ldc, View a, const float* b, std::int64_t ldb,
                          std::int64_t k, std::int64_t last, bool add) {
  Vec total[R][C];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < C; ++v) total[r][v] = zero();
  if (last == kLanes) {
    for (std::int64_t l = 0; l < k; ++l) {
      Vec right[C];
      for (int v = 0; v < C; ++v) right[v] = load(b + l * ldb + v * kLanes);
      for (int r = 0; r < R; ++r) {
        const Vec left = splat(a.data[r * a.row + l * a.column]);
        for (int v = 0; v < C; ++v) total[r][v] = fma(left, right[v], total[r][v]);
      }
    }
  } else {
    for (std::int64_t l = 0; l < k; ++l) {
      Vec right[C];
      for (int v = 0; v < C - 1; ++v) right[v] = load(b + l * ldb + v * kLanes);
      right[C - 1] = load(b + l * ldb + (C - 1) * kLanes, last);
      for (int r = 0; r < R; ++r) {
        const Vec left = splat(a.data[r * a.row + l * a.column]);
        for (int v = 0; v < C; ++v) total[r][v] = fma(left, right[v], total[r][v]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < C; ++v) {
      float* to = c + r * ldc + v * kLanes;
      if (v < C - 1 || last == kLanes) {
        store(to, add ? load(to) + total[r][v] : total[r][v]);
      } else {
        store(to, add ? load(to, last) + total[r][v] : total[r][v], last);
      }
    }
}

template <int R>
inline void product_rows(float* c, std::int64_t ldc, View a, const float* b, std::int64_t ldb, std::int64_t n,
                         std::int64_t k, bool add) {
  std::int64_t j = 0;
  for (; j + kLanes < n; j += 2 * kLanes)
    product_block<R, 2>(c + j, ldc, a, b + j, ldb, k, smaller(kLanes, n - j - kLanes), add);
  if (j < n) product_block<R, 1>(c + j, ldc, a, b + j, ldb, k, n - j, add);
}

inline void tile_product(float* c, std::int64_t ldc, View a, const float* b, std::int64_t ldb, std::int64_t m,
                         std::int64_t n, std::int64_t k, bool add, Shape shape = Shape::kFull) {
  for (std::int64_t i = 0; i < m; i += kBlockRows) {
    const std::int64_t rows = smaller(kBlockRows, m - i);
    const std::int64_t first = shape == Shape::kUpperA ? i : 0;
    const std::int64_t end = shape == Shape::kLowerA ? smaller(k, i + rows) : k;
    const std::int64_t columns = shape == Shape::kLowerC ? smaller(n, i + rows) : n;
    const View part{a.data + i * a.row + first * a.column, a.row, a.column};
    const float* right = b + first * ldb;
    float* to = c + i * ldc;
    const std::int64_t length = end - first;
    switch (rows) {
#if defined(__AVX512F__)
      case 8:
        product_rows<8>(to, ldc, part, right, ldb, columns, length, add);
        break;
      case 7:
        product_rows<7>(to, ldc, part, right, ldb, columns, length, add);
        break;
#endif
#if defined(__AVX2__)
      case 6:
        product_rows<6>(to, ldc, part, right, ldb, columns, length, add);
        break;
      case 5:
        product_rows<5>(to, ldc, part, right, ldb, columns, length, add);
        break;
#endif
      case 4:
        product_rows<4>(to, ldc, part, right, ldb, columns, length, add);
        break;
      case 3:
        product_rows<3>(to, ldc, part, right, ldb, columns, length, add);
        break;
      case 2:
        product_rows<2>(to, ldc, part, right, ldb, columns, length, add);
        break;
      default:
        product_rows<1>(to, ldc, part, right, ldb, columns, length, add);
    }
  }
}

}  // namespace andrea::ANDREA_CPU_PATH
