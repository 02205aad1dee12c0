#include "tokenizer/candidates.h"

#include <algorithm>

#include "tokenizer/pretokens.h"
#include "tokenizer/unicode_classes.h"
#include "tokenizer/utf8.h"

namespace andrea {
namespace {

constexpr std::uint32_t kNone = 0xFFFFFFFFU;

// Children found on one level of the trie, keyed by (parent, character), with two counts each: all
// occurrences, and those that no combining mark follows.
class LevelMap {
 public:
  struct Child {
    std::uint64_t key = 0;
    std::int64_t all = 0;
    std::int64_t ending = 0;
    std::uint32_t node = kNone;
  };

  LevelMap() : children_(1U << 12) {}

  // Index of a child; stays right until the next call of find_or_add.
  std::size_t find_or_add(std::uint64_t key) {
    if (size_ * 3 > children_.size() * 2) grow();
    const std::size_t i = place(key);
    if (children_[i].all == 0) ++size_;
    children_[i].key = key;
    return i;
  }

  Child& at(std::size_t i) { return children_[i]; }
  Child& find(std::uint64_t key) { return children_[place(key)]; }

 private:
  std::size_t place(std::uint64_t key) const {
    const std::size_t mask = children_.size() - 1;
    std::size_t i = (key * 0x9E3779B97F4A7C15ULL >> 24) & mask;
    while (children_[i].all != 0 && children_[i].key != key) i = (i + 1) & mask;
    return i;
  }

  void grow() {
    std::vector<Child> old(children_.size() * 2);
    old.swap(children_);
    for (const Child& child : old)
      if (child.all != 0) children_[place(child.key)] = child;
  }

  std::vector<Child> children_;  // all == 0: free
  std::size_t size_ = 0;
};

// A place whose match of the present level is `node`.
struct Growing {
  std::uint32_t place;
  std::uint32_t type;
  std::uint32_t node;
};

}  // namespace

CandidateTable::CandidateTable(const std::vector<CountedType>& types, const CandidateSettings& settings) {
  std::vector<std::uint32_t> characters;  // code point at each place
  for (const CountedType& type : types) {
    type_begin_.push_back(characters.size());
    for (std::size_t at = 0; at < type.text.size();) {
      const pretokens::Step step = pretokens::step_at(type.text, at);
      characters.push_back(step.code_point);
      char_bytes_.push_back(static_cast<std::uint8_t>(step.length));
      mark_.push_back(char_class(step.code_point) == CharClass::kMark ? 1 : 0);
      at += step.length;
    }
  }
  type_begin_.push_back(characters.size());

  std::vector<Growing> growing;
  for (std::uint32_t t = 0; t < types.size(); ++t)
    for (std::size_t place = type_begin_[t]; place < type_begin_[t + 1]; ++place)
      growing.push_back({static_cast<std::uint32_t>(place), t, kNone});

  // Level by level: a substring can be frequent only if the one without its last character is.
  std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> levels;
  // Marks lengthen a letter without being one, so levels may outnumber letters; kLongestPreToken bounds them.
  std::vector<std::uint8_t> letters(characters.size(), 0);
  for (std::size_t level = 0; !growing.empty(); ++level) {
    LevelMap map;
    const auto key_of = [&](const Growing& g) {
      return (static_cast<std::uint64_t>(g.node) + 1) << 21 | characters[g.place + level];
    };
    std::vector<Growing> next;
    next.reserve(growing.size());
    for (const Growing& g : growing) {
      const std::size_t at = g.place + level;
      if (at >= type_begin_[g.type + 1] || (level > 0 && mark_[g.place] != 0)) continue;
      // White-space runs have no letters; pre-tokens are short enough for them.
      const bool counts_as_letter = mark_[at] == 0 && char_class(characters[at]) != CharClass::kWhiteSpace;
      if (counts_as_letter && ++letters[g.place] > settings.most_letters) continue;
      LevelMap::Child& child = map.at(map.find_or_add(key_of(g)));
      child.all += types[g.type].count;
      const bool mark_follows = at + 1 < type_begin_[g.type + 1] && mark_[at + 1] != 0;
      if (!mark_follows) child.ending += types[g.type].count;
      next.push_back(g);
    }
    // Nodes get their numbers in the order of their first occurrence.
    auto& level_matches = levels.emplace_back();
    growing.clear();
    for (Growing g : next) {
      LevelMap::Child& child = map.find(key_of(g));
      if (child.all < settings.least_count) continue;
      if (child.node == kNone) {
        child.node = static_cast<std::uint32_t>(parent_.size());
        const std::size_t at = g.place + level;
        const bool one_byte = level == 0 && char_bytes_[at] == 1;
        const std::int64_t uses = level == 0 ? child.all : child.ending;
        parent_.push_back(g.node);
        code_point_.push_back(characters[at]);
        allowed_.push_back(!one_byte && uses >= settings.least_count ? 1 : 0);
      }
      g.node = child.node;
      level_matches.emplace_back(g.place, g.node);
      growing.push_back(g);
    }
  }

  match_begin_.assign(characters.size() + 1, 0);
  for (const auto& level : levels)
    for (const auto& [place, node] : level) ++match_begin_[place + 1];
  for (std::size_t place = 0; place < characters.size(); ++place)
    match_begin_[place + 1] += match_begin_[place];
  match_.resize(match_begin_.back());
  for (std::size_t level = 0; level < levels.size(); ++level) {
    for (const auto& [place, node] : levels[level]) match_[match_begin_[place] + level] = node;
    levels[level] = {};
  }
}

std::string CandidateTable::text(std::uint32_t node) const {
  std::vector<std::uint32_t> reversed;
  for (; node != kNone; node = parent_[node]) reversed.push_back(code_point_[node]);
  std::string text;
  for (auto c = reversed.rbegin(); c != reversed.rend(); ++c) append_utf8(*c, text);
  return text;
}

}  // namespace andrea
