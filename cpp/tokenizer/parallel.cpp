#include "tokenizer/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace andrea {

std::size_t thread_count(int threads) {
  if (threads > 0) return static_cast<std::size_t>(threads);
  return std::max(1U, std::thread::hardware_concurrency());
}

void parallel_for(std::size_t items, std::size_t threads,
                  const std::function<void(std::size_t item, std::size_t thread)>& work) {
  threads = std::min(std::max<std::size_t>(threads, 1), items);
  if (threads <= 1) {
    for (std::size_t item = 0; item < items; ++item) work(item, 0);
    return;
  }
  std::atomic<std::size_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const auto run = [&](std::size_t thread) {
    try {
      for (std::size_t item; (item = next.fetch_add(1)) < items;) work(item, thread);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(failure_mutex);
      if (!failure) failure = std::current_exception();
      next = items;
    }
  };
  std::vector<std::thread> crew;
  for (std::size_t thread = 1; thread < threads; ++thread) crew.emplace_back(run, thread);
  run(0);
  for (std::thread& one : crew) one.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace andrea
