#include "tokenizer/byte_trie.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>

namespace andrea {

/// Lays the nodes of a trie into slots, breadth first, so that what is used most lies together.
class ByteTrieBuilder {
 public:
  ByteTrieBuilder(ByteTrie& trie, const std::vector<std::string>& strings, std::int32_t first_id)
      : trie_(trie), strings_(strings), first_id_(first_id) {}

  void build() {
    order_.resize(strings_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::sort(order_.begin(), order_.end(),
              [this](std::size_t a, std::size_t b) { return strings_[a] < strings_[b]; });
    add_block();  // block 0 stays empty but for the root's own slot 0: base 0 leads nowhere
    std::deque<Node> queue{{0, 0, order_.size(), 0}};
    while (!queue.empty()) {
      const Node node = queue.front();
      queue.pop_front();
      place_children(node, queue);
    }
  }

 private:
  struct Node {
    std::size_t slot;
    std::size_t begin, end;  // strings below it, in sorted order
    std::size_t depth;
  };

  void add_block() {
    trie_.slots_.resize(trie_.slots_.size() + 256, ByteTrie::pack(0, ByteTrie::kNoId, ByteTrie::kFree));
    base_used_.resize(trie_.slots_.size(), 0);
  }

  bool free(std::size_t slot) const { return (trie_.slots_[slot] & 0xFFFF) == ByteTrie::kFree; }

  bool fits(std::size_t base, const std::vector<unsigned char>& labels) const {
    if (base_used_[base]) return false;
    return std::all_of(labels.begin(), labels.end(), [&](unsigned char label) { return free(base ^ label); });
  }

  // Only the youngest blocks are searched: the time stays linear and little room is lost.
  std::size_t find_base(const std::vector<unsigned char>& labels) {
    constexpr std::size_t kBlocksSearched = 16;
    const std::size_t blocks = trie_.slots_.size() / 256;
    const std::size_t first = std::max<std::size_t>(1, blocks - std::min(blocks, kBlocksSearched));
    for (std::size_t base = first * 256; base < blocks * 256; ++base)
      if (fits(base, labels)) return base;
    add_block();
    return blocks * 256;
  }

  void place_children(const Node& node, std::deque<Node>& queue) {
    std::vector<unsigned char> labels;
    std::vector<Node> children;
    if (node.depth == 0)
      for (int byte = 0; byte < 256; ++byte) labels.push_back(static_cast<unsigned char>(byte));
    for (std::size_t i = node.begin; i < node.end;) {
      const auto label = static_cast<unsigned char>(strings_[order_[i]][node.depth]);
      std::size_t j = i;
      while (j < node.end && static_cast<unsigned char>(strings_[order_[j]][node.depth]) == label) ++j;
      if (node.depth > 0) labels.push_back(label);
      children.push_back({label, i, j, node.depth + 1});
      i = j;
    }
    if (labels.empty()) return;
    const std::size_t base = find_base(labels);
    base_used_[base] = 1;
    trie_.slots_[node.slot] =
        (trie_.slots_[node.slot] & ((1ULL << 40) - 1)) | static_cast<std::uint64_t>(base) << 40;
    for (const unsigned char label : labels)
      trie_.slots_[base ^ label] = ByteTrie::pack(0, node.depth == 0 ? label : ByteTrie::kNoId, label);
    for (Node child : children) {
      child.slot = base ^ child.slot;
      const std::size_t string = order_[child.begin];
      // Sorted order puts the string that ends here before those that go on.
      if (strings_[string].size() == child.depth) {
        const std::uint64_t label = trie_.slots_[child.slot] & 0xFFFF;
        trie_.slots_[child.slot] = ByteTrie::pack(0, static_cast<std::uint64_t>(first_id_) + string, label);
        ++child.begin;
      }
      if (child.begin < child.end) queue.push_back(child);
    }
  }

  ByteTrie& trie_;
  const std::vector<std::string>& strings_;
  std::int32_t first_id_;
  std::vector<std::size_t> order_;
  std::vector<char> base_used_;
};

ByteTrie::ByteTrie(const std::vector<std::string>& strings, std::int32_t first_id) {
  ByteTrieBuilder(*this, strings, first_id).build();
  for (const std::string& text : strings) longest_string_ = std::max(longest_string_, text.size());
  const std::uint64_t root = slots_[0] >> 40;
  pairs_.resize(65536);
  for (std::uint64_t first = 0; first < 256; ++first) {
    for (std::uint64_t second = 0; second < 256; ++second) {
      std::uint64_t entry = pack(0, first, 1);
      const std::uint64_t child = slots_[(slots_[root ^ first] >> 40) ^ second];
      if ((child & 0xFFFF) == second) {
        const std::uint64_t id = (child >> 16) & kNoId;
        entry = id == kNoId ? pack(child >> 40, first, 1) : pack(child >> 40, id, 2);
      }
      pairs_[second << 8 | first] = entry;
    }
  }
}

TrieMatch ByteTrie::longest(std::string_view bytes) const {
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  TrieMatch best{p[0], 1};
  std::uint64_t base = slots_[0] >> 40;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::uint64_t slot = slots_[base ^ p[i]];
    if ((slot & 0xFFFF) != p[i]) break;
    base = slot >> 40;
    const std::uint64_t id = (slot >> 16) & kNoId;
    if (id != kNoId) best = {static_cast<std::int32_t>(id), i + 1};
  }
  return best;
}

std::size_t ByteTrie::encode(const unsigned char*& begin, const unsigned char* end, std::int32_t* out,
                             std::size_t capacity) const {
  const std::uint64_t* const slots = slots_.data();
  const std::uint64_t* const pairs = pairs_.data();
  const unsigned char* p = begin;
  std::size_t n = 0;
  // Where more bytes are left than any walk can read, no step needs to look for the end.
  while (n<capacity&& static_cast<std::size_t>(end - p)> longest_string_ + 1) {
    const std::uint64_t entry = pairs[p[0] | static_cast<std::size_t>(p[1]) << 8];
    std::uint64_t id = (entry >> 16) & kNoId;
    std::uint64_t base = entry >> 40;
    const unsigned char* stop = p + (entry & 0xFFFF);
    for (const unsigned char* q = p + 2;; ++q) {
      const std::uint64_t slot = slots[base ^ *q];
      if ((slot & 0xFFFF) != *q) break;
      base = slot >> 40;
      const std::uint64_t here = (slot >> 16) & kNoId;
      id = here != kNoId ? here : id;
      stop = here != kNoId ? q + 1 : stop;
    }
    out[n++] = static_cast<std::int32_t>(id);
    p = stop;
  }
  while (n < capacity && p < end) {
    const TrieMatch match = longest({reinterpret_cast<const char*>(p), static_cast<std::size_t>(end - p)});
    out[n++] = match.id;
    p += match.length;
  }
  begin = p;
  return n;
}

}  // namespace andrea
