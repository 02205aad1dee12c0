#include "tokenizer/unicode_classes.h"

#include <array>
#include <vector>

namespace andrea {
namespace {

struct CodePointRange {
  std::uint32_t first, last;
};

struct LowerCaseRun {
  std::uint32_t first, last, step;
  std::int32_t distance;
};

#include "tokenizer/unicode_ranges.inc"

constexpr std::uint32_t kCodePoints = 0x110000;
constexpr std::uint32_t kBlock = 256;

// Two stages: a code point's block, then its place in the block; blocks of one class share storage.
class ClassTable {
 public:
  ClassTable() {
    std::vector<CharClass> all(kCodePoints, CharClass::kSign);
    paint(all, kLetters, CharClass::kLetter);
    paint(all, kMarks, CharClass::kMark);
    paint(all, kDigits, CharClass::kDigit);
    paint(all, kWhiteSpace, CharClass::kWhiteSpace);
    std::array<std::int32_t, 5> uniform{-1, -1, -1, -1, -1};
    for (std::uint32_t block = 0; block < kCodePoints / kBlock; ++block) {
      const CharClass* cells = &all[block * kBlock];
      bool same = true;
      for (std::uint32_t i = 1; i < kBlock; ++i) same = same && cells[i] == cells[0];
      std::int32_t& shared = uniform[static_cast<std::size_t>(cells[0])];
      if (same && shared >= 0) {
        block_[block] = static_cast<std::uint32_t>(shared);
        continue;
      }
      block_[block] = static_cast<std::uint32_t>(cells_.size());
      if (same) shared = static_cast<std::int32_t>(cells_.size());
      cells_.insert(cells_.end(), cells, cells + kBlock);
    }
  }

  CharClass at(std::uint32_t c) const {
    return c < kCodePoints ? cells_[block_[c / kBlock] + c % kBlock] : CharClass::kSign;
  }

 private:
  template <std::size_t n>
  static void paint(std::vector<CharClass>& all, const CodePointRange (&ranges)[n], CharClass what) {
    for (const CodePointRange& range : ranges)
      for (std::uint32_t c = range.first; c <= range.last; ++c) all[c] = what;
  }

  std::array<std::uint32_t, kCodePoints / kBlock> block_{};
  std::vector<CharClass> cells_;
};

}  // namespace

CharClass char_class(std::uint32_t code_point) {
  static const ClassTable table;
  return table.at(code_point);
}

std::uint32_t lower_case(std::uint32_t code_point) {
  // Runs are few and sorted by their first code point.
  std::size_t low = 0;
  std::size_t high = std::size(kLowerCase);
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (kLowerCase[middle].last < code_point)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == std::size(kLowerCase)) return code_point;
  const LowerCaseRun& run = kLowerCase[low];
  if (code_point < run.first || (code_point - run.first) % run.step != 0) return code_point;
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(code_point) + run.distance);
}

const char* unicode_version() { return kUnicodeVersion; }

}  // namespace andrea
