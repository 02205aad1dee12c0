#include "tokenizer/harris.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tokenizer/parallel.h"

namespace andrea {
namespace {

// One direction: words sorted by their letters read from the front (or from the back), so that all words with
// a common prefix lie together; each prefix is met once.
class Variety {
 public:
  Variety(const LetterWords& words, bool from_back) : words_(words), back_(from_back), order_(words.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::sort(order_.begin(), order_.end(), [this](std::size_t a, std::size_t b) {
      const std::size_t n = std::min(words_.length(a), words_.length(b));
      for (std::size_t i = 0; i < n; ++i)
        if (letter(a, i) != letter(b, i)) return letter(a, i) < letter(b, i);
      return words_.length(a) < words_.length(b);
    });
  }

  // Entropy at each place in words.letters.
  std::vector<float> entropies() {
    entropy_.assign(words_.letters.size(), 0.0F);
    if (!order_.empty()) visit(0, order_.size(), 0);
    return std::move(entropy_);
  }

 private:
  std::uint32_t letter(std::size_t word, std::size_t i) const {
    const std::size_t at = back_ ? words_.begin[word + 1] - 1 - i : words_.begin[word] + i;
    return words_.letters[at];
  }

  // The words order_[begin, end) share their first `depth` letters.
  void visit(std::size_t begin, std::size_t end, std::size_t depth) {
    double sum = 0;  // of c log2 c over the ways to go on
    std::size_t i = begin;
    while (i < end && words_.length(order_[i]) == depth) ++i;
    const auto add = [&sum](std::size_t count) {
      if (count > 1) sum += static_cast<double>(count) * std::log2(static_cast<double>(count));
    };
    add(i - begin);
    while (i < end) {
      const std::uint32_t next = letter(order_[i], depth);
      std::size_t j = i + 1;
      while (j < end && letter(order_[j], depth) == next) ++j;
      add(j - i);
      // A prefix of one word goes on in one way only: entropy 0 from there.
      if (j - i > 1) visit(i, j, depth + 1);
      i = j;
    }
    if (depth == 0) return;
    const auto n = static_cast<double>(end - begin);
    const auto entropy = static_cast<float>(std::log2(n) - sum / n);
    for (std::size_t k = begin; k < end; ++k) {
      const std::size_t word = order_[k];
      if (words_.length(word) == depth) continue;
      entropy_[back_ ? words_.begin[word + 1] - depth : words_.begin[word] + depth] = entropy;
    }
  }

  const LetterWords& words_;
  bool back_;
  std::vector<std::size_t> order_;
  std::vector<float> entropy_;
};

}  // namespace

std::vector<float> boundary_entropy(const LetterWords& words, int threads) {
  std::vector<float> both[2];
  parallel_for(2, thread_count(threads),
               [&](std::size_t side, std::size_t) { both[side] = Variety(words, side == 1).entropies(); });
  for (std::size_t i = 0; i < both[0].size(); ++i) both[0][i] += both[1][i];
  return std::move(both[0]);
}

}  // namespace andrea
