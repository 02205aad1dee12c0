// Loops over fixed pieces of work. Which thread does a piece never matters to the result.
#pragma once

#include <omp.h>

#include <cstdint>

namespace andrea::ANDREA_CPU_PATH {

/// body(piece, thread) for each of n pieces, on up to `threads` threads. The count is passed with each loop:
/// the global setting of OpenMP belongs to the host program.
template <class Body>
void parallel_for(int threads, std::int64_t n, const Body& body) {
  if (n <= 1 || threads == 1) {
    for (std::int64_t i = 0; i < n; ++i) body(i, 0);
    return;
  }
  const int team = n < threads ? static_cast<int>(n) : threads;
#pragma omp parallel for num_threads(team) schedule(dynamic, 1)
  for (std::int64_t i = 0; i < n; ++i) body(i, omp_get_thread_num());
}

constexpr std::int64_t kPiece = 16384;  ///< elements of an element-wise operation done at a time

/// body(first, count) over [0, n) in pieces of `piece` elements.
template <class Body>
void parallel_pieces(int threads, std::int64_t n, std::int64_t piece, const Body& body) {
  parallel_for(threads, (n + piece - 1) / piece, [&](std::int64_t i, int) {
    const std::int64_t first = i * piece;
    body(first, n - first < piece ? n - first : piece);
  });
}

}  // namespace andrea::ANDREA_CPU_PATH
