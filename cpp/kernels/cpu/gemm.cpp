// Matrix products: OpenBLAS, one thread a call, on tiles whose cut depends on the shape alone.
//
// A tile is one BLAS call with the whole inner dimension, so its bits are those of that call, whichever
// thread makes it. Costs 2 m n k FLOP. For a few rows (decoding) the weights are the traffic: they are read
// once, by dot products of our own, which BLAS does slower for such shapes.
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vec.h"

namespace andrea::ANDREA_CPU_PATH {
namespace {

constexpr int kRowMajor = 101, kAsIs = 111, kTransposed = 112;
constexpr std::int64_t kMinTile = 64;     // a smaller tile wastes the packing that BLAS does
constexpr std::int64_t kEnoughTiles = 8;  // keeps some cores busy; more tiles cost more packing
constexpr std::int64_t kFewRows = 8;

std::int64_t even_cut(std::int64_t n, std::int64_t parts) { return (pieces_of(n, parts) + 15) / 16 * 16; }

}  // namespace

Tiling::Tiling(std::int64_t m, std::int64_t n) : m_(m), n_(n) {
  height_ = even_cut(m, pieces_of(m, kMaxRows));
  width_ = even_cut(n, pieces_of(n, kMaxColumns));
  for (;;) {
    down_ = pieces_of(m, height_);
    across_ = pieces_of(n, width_);
    if (count() >= kEnoughTiles) return;
    if (width_ >= height_ && width_ >= 2 * kMinTile) {
      width_ = even_cut(width_, 2);
    } else if (height_ >= 2 * kMinTile) {
      height_ = even_cut(height_, 2);
    } else {
      return;
    }
  }
}

Tile Tiling::tile(std::int64_t i) const {
  const std::int64_t row = i / across_ * height_, column = i % across_ * width_;
  return {row, smaller(height_, m_ - row), column, smaller(width_, n_ - column)};
}

void CpuOps::multiply_tile(float* c, std::int64_t ldc, Factor a, Factor b, const Tile& tile, std::int64_t k,
                           bool add) const {
  const float* a_tile = a.data + tile.row * (a.transposed ? 1 : a.ld);
  const float* b_tile = b.data + tile.column * (b.transposed ? b.ld : 1);
  sgemm_(kRowMajor, a.transposed ? kTransposed : kAsIs, b.transposed ? kTransposed : kAsIs,
         static_cast<int>(tile.rows), static_cast<int>(tile.columns), static_cast<int>(k), 1.0f, a_tile,
         static_cast<int>(a.ld), b_tile, static_cast<int>(b.ld), add ? 1.0f : 0.0f, c, static_cast<int>(ldc));
}

void CpuOps::linear(float* out, const float* x, const float* w, const float* residual, std::int64_t m,
                    std::int64_t n, std::int64_t k) const {
  if (m <= kFewRows) return linear_few_rows(out, x, w, residual, m, n, k);
  const Tiling tiling(m, n);
  parallel_for(threads_, tiling.count(), [&](std::int64_t i, int) {
    const Tile tile = tiling.tile(i);
    float* c = out + tile.row * n + tile.column;
    if (residual != nullptr) {
      const float* r = residual + tile.row * n + tile.column;
      for (std::int64_t row = 0; row < tile.rows; ++row)
        for (std::int64_t j = 0; j < tile.columns; ++j) c[row * n + j] = r[row * n + j];
    }
    multiply_tile(c, n, {x, k, false}, {w, k, true}, tile, k, residual != nullptr);
  });
}

namespace {

// Dot products of R rows of x with 4 rows of w; out [R, 4] with row distance n.
template <int R>
void dots(float* out, std::int64_t n, const float* x, const float* w, std::int64_t k, std::int64_t columns) {
  Vec total[R][4];
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < 4; ++c) total[r][c] = zero();
  const auto step = [&](auto loader) {
    Vec weights[4];
    for (int c = 0; c < 4; ++c) weights[c] = loader(w + (c < columns ? c : 0) * k);
    for (int r = 0; r < R; ++r) {
      const Vec value = loader(x + r * k);
      for (int c = 0; c < 4; ++c) total[r][c] = fma(value, weights[c], total[r][c]);
    }
  };
  std::int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) step([i](const float* p) { return load(p + i); });
  if (i < k) step([i, k](const float* p) { return load(p + i, k - i); });
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < 4; ++c)
      if (c < columns) out[r * n + c] += sum(total[r][c]);
}

}  // namespace

void CpuOps::linear_few_rows(float* out, const float* x, const float* w, const float* residual,
                             std::int64_t m, std::int64_t n, std::int64_t k) const {
  parallel_pieces(threads_, n, 64, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t r = 0; r < m; ++r)
      for (std::int64_t c = first; c < first + count; ++c)
        out[r * n + c] = residual != nullptr ? residual[r * n + c] : 0.0f;
    for (std::int64_t c = first; c < first + count; c += 4) {
      const std::int64_t columns = smaller(4, first + count - c);
      std::int64_t r = 0;
      for (; r + 2 <= m; r += 2) dots<2>(out + r * n + c, n, x + r * k, w + c * k, k, columns);
      if (r < m) dots<1>(out + r * n + c, n, x + r * k, w + c * k, k, columns);
    }
  });
}

void CpuOps::linear_input_gradient(float* dx, const float* dy, const float* w, std::int64_t m, std::int64_t n,
                                   std::int64_t k) const {
  const Tiling tiling(m, k);
  parallel_for(threads_, tiling.count(), [&](std::int64_t i, int) {
    const Tile tile = tiling.tile(i);
    multiply_tile(dx + tile.row * k + tile.column, k, {dy, n, false}, {w, k, false}, tile, n, false);
  });
}

void CpuOps::linear_weight_gradient(float* dw, const float* dy, const float* x, std::int64_t m,
                                    std::int64_t n, std::int64_t k, bool accumulate) const {
  const Tiling tiling(n, k);
  parallel_for(threads_, tiling.count(), [&](std::int64_t i, int) {
    const Tile tile = tiling.tile(i);
    multiply_tile(dw + tile.row * k + tile.column, k, {dy, n, true}, {x, k, false}, tile, m, accumulate);
  });
}

}  // namespace andrea::ANDREA_CPU_PATH
