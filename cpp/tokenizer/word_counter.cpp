#include "tokenizer/word_counter.h"

#include <algorithm>
#include <cstring>

#include "tokenizer/parallel.h"
#include "tokenizer/pretokens.h"

namespace andrea {
namespace {

constexpr std::size_t kPartBytes = 1U << 20;
constexpr std::int64_t kEpochBytes = 256LL << 20;

std::uint32_t hash_bytes(std::string_view text) {
  std::uint64_t hash = 0x9E3779B97F4A7C15ULL ^ text.size();
  const char* p = text.data();
  std::size_t left = text.size();
  for (std::uint64_t word; left >= 8; p += 8, left -= 8) {
    std::memcpy(&word, p, 8);
    hash = (hash ^ word) * 0xD6E8FEB86659FD93ULL;
    hash ^= hash >> 32;
  }
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < left; ++i)
    word |= static_cast<std::uint64_t>(static_cast<unsigned char>(p[i])) << 8 * i;
  hash = (hash ^ word) * 0xD6E8FEB86659FD93ULL;
  return static_cast<std::uint32_t>(hash >> 32);
}

}  // namespace

CountMap::CountMap() : entries_(1U << 12) {}

void CountMap::clear() { *this = CountMap(); }

void CountMap::add(std::string_view text, std::int64_t count) {
  const std::uint32_t hash = hash_bytes(text);
  const std::size_t mask = entries_.size() - 1;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    Entry& entry = entries_[i];
    if (entry.count == 0) {
      entry = {arena_.size(), count, hash, static_cast<std::uint32_t>(text.size())};
      arena_.append(text);
      if (++size_ * 3 > entries_.size() * 2) grow();
      return;
    }
    if (entry.hash == hash && entry.length == text.size() &&
        std::memcmp(arena_.data() + entry.offset, text.data(), text.size()) == 0) {
      entry.count += count;
      return;
    }
  }
}

void CountMap::grow() {
  std::vector<Entry> old(entries_.size() * 2);
  old.swap(entries_);
  const std::size_t mask = entries_.size() - 1;
  for (const Entry& entry : old) {
    if (entry.count == 0) continue;
    std::size_t i = entry.hash & mask;
    while (entries_[i].count != 0) i = (i + 1) & mask;
    entries_[i] = entry;
  }
}

void CountMap::merge(const CountMap& other) {
  other.for_each([this](std::string_view text, std::int64_t count) { add(text, count); });
}

void CountMap::prune(std::int64_t least) {
  CountMap kept;
  for_each([&](std::string_view text, std::int64_t count) {
    if (count >= least) kept.add(text, count);
  });
  *this = std::move(kept);
}

WordCounter::WordCounter(int threads, std::size_t max_types)
    : threads_(thread_count(threads)), max_types_(max_types), maps_(threads_) {}

void WordCounter::count_parts(const std::vector<std::string_view>& parts) {
  parallel_for(parts.size(), threads_, [&](std::size_t part, std::size_t thread) {
    CountMap& map = maps_[thread];
    for_each_pretoken(parts[part], [&map](std::string_view text) { map.add(text, 1); });
  });
  for (const std::string_view part : parts) {
    bytes_ += static_cast<std::int64_t>(part.size());
    epoch_bytes_ += static_cast<std::int64_t>(part.size());
  }
  if (epoch_bytes_ >= kEpochBytes) end_epoch();
}

void WordCounter::end_epoch() {
  for (CountMap& map : maps_) {
    total_.merge(map);
    map.clear();
  }
  for (std::int64_t least = 2; total_.size() > max_types_; ++least) total_.prune(least);
  epoch_bytes_ = 0;
}

void WordCounter::add(const std::vector<std::string_view>& documents) { count_parts(documents); }

std::size_t WordCounter::add_block(std::string_view block, bool last) {
  std::vector<std::string_view> parts;
  std::size_t used = 0;
  while (used < block.size()) {
    const std::string_view rest = block.substr(used);
    if (rest.size() <= kPartBytes && last) {
      parts.push_back(rest);
      used = block.size();
      break;
    }
    std::size_t edge = last_pretoken_edge(rest.substr(0, kPartBytes));
    if (edge == 0) {
      if (rest.size() < kPartBytes) break;
      edge = kPartBytes;
    }
    parts.push_back(rest.substr(0, edge));
    used += edge;
    if (rest.size() < kPartBytes) break;
  }
  count_parts(parts);
  return used;
}

std::vector<CountedType> WordCounter::types() {
  end_epoch();
  std::vector<CountedType> list;
  list.reserve(total_.size());
  total_.for_each(
      [&list](std::string_view text, std::int64_t count) { list.push_back({std::string(text), count}); });
  std::sort(list.begin(), list.end(),
            [](const CountedType& a, const CountedType& b) { return a.text < b.text; });
  return list;
}

}  // namespace andrea
