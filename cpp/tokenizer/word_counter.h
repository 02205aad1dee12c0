// Counts pre-tokens of any amount of text, over threads, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace andrea {

/// A pre-token and how often it was seen.
struct CountedType {
  std::string text;
  std::int64_t count;
};

/// Open-addressing map from pre-token to count; the letters lie in one arena.
class CountMap {
 public:
  CountMap();
  void add(std::string_view text, std::int64_t count);
  void merge(const CountMap& other);
  /// Forgets types seen fewer than `least` times.
  void prune(std::int64_t least);
  std::size_t size() const { return size_; }
  void clear();

  template <class Visit>
  void for_each(Visit visit) const {
    for (const Entry& entry : entries_)
      if (entry.count > 0) visit(std::string_view(arena_.data() + entry.offset, entry.length), entry.count);
  }

 private:
  struct Entry {
    std::uint64_t offset = 0;
    std::int64_t count = 0;  // 0: free
    std::uint32_t hash = 0;
    std::uint32_t length = 0;
  };
  void grow();
  std::vector<Entry> entries_;
  std::string arena_;
  std::size_t size_ = 0;
};

/// Counts the pre-tokens of one source. What it finds does not depend on the number of threads.
class WordCounter {
 public:
  /// threads <= 0 takes all cores. When more than max_types are known at the end of an epoch of 256 MiB, the
  /// rarest are forgotten, by thresholds 2, 3, ... until they fit.
  explicit WordCounter(int threads = 0, std::size_t max_types = 3'000'000);

  /// Counts whole documents; a pre-token never crosses the edge of one.
  void add(const std::vector<std::string_view>& documents);

  /// Counts a block of a long stream up to a safe edge and returns the number of bytes used; the caller puts
  /// the rest in front of the next block. With `last` all is used. A block without an edge is used whole.
  std::size_t add_block(std::string_view block, bool last);

  std::int64_t bytes() const { return bytes_; }

  /// All types sorted by their bytes.
  std::vector<CountedType> types();

 private:
  void count_parts(const std::vector<std::string_view>& parts);
  void end_epoch();

  std::size_t threads_;
  std::size_t max_types_;
  std::vector<CountMap> maps_;  // one a thread, of this epoch
  CountMap total_;
  std::int64_t bytes_ = 0;
  std::int64_t epoch_bytes_ = 0;
};

}  // namespace andrea
