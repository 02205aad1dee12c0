// Splits numbered work over a few threads.
#pragma once

#include <cstddef>
#include <functional>

namespace andrea {

/// The number of threads that `threads` asks for: itself, or all cores this process may use if it is <= 0.
std::size_t thread_count(int threads);

/// Calls work(item, thread) once for each item in 0..items-1, on `threads` threads that take the next item
/// when they are free. The first exception is thrown again here once all threads have ended.
void parallel_for(std::size_t items, std::size_t threads,
                  const std::function<void(std::size_t item, std::size_t thread)>& work);

}  // namespace andrea
