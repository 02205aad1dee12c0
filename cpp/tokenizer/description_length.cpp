#include "tokenizer/description_length.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace andrea {
namespace {

double x_log_x(double x) { return x > 0 ? x * std::log(x) : 0; }

// Number of times each morph is used, found by a 64-bit key.
class MorphCounts {
 public:
  MorphCounts() : keys_(1U << 16, 0), counts_(1U << 16, 0) {}

  std::uint32_t count(std::uint64_t key) const { return counts_[place(key)]; }

  // The count of a morph to read and change; valid until the next call.
  std::uint32_t& at(std::uint64_t key) {
    if (used_ * 2 > keys_.size()) grow();
    const std::size_t i = place(key);
    if (keys_[i] == 0) {
      keys_[i] = key;
      ++used_;
    }
    return counts_[i];
  }

 private:
  std::size_t place(std::uint64_t key) const {
    const std::size_t mask = keys_.size() - 1;
    std::size_t i = (key * 0x9E3779B97F4A7C15ULL >> 20) & mask;
    while (keys_[i] != 0 && keys_[i] != key) i = (i + 1) & mask;
    return i;
  }

  void grow() {
    std::vector<std::uint64_t> keys(keys_.size() * 2, 0);
    std::vector<std::uint32_t> counts(keys.size(), 0);
    keys.swap(keys_);
    counts.swap(counts_);
    used_ = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (counts[i] == 0) continue;  // morphs no longer used are forgotten
      const std::size_t j = place(keys[i]);
      keys_[j] = keys[i];
      counts_[j] = counts[i];
      ++used_;
    }
  }

  std::vector<std::uint64_t> keys_;  // 0: free
  std::vector<std::uint32_t> counts_;
  std::size_t used_ = 0;
};

class Splitter {
 public:
  Splitter(const LetterWords& words, const std::vector<float>& entropy, const DescriptionSettings& settings)
      : words_(words), entropy_(entropy), settings_(settings), begins_(words.letters.size(), 0) {
    std::vector<double> seen(words.alphabet.size(), 0);
    for (const std::uint32_t letter : words.letters) seen[letter] += 1;
    const auto all = static_cast<double>(words.letters.size());
    letter_cost_.resize(seen.size());
    for (std::size_t letter = 0; letter < seen.size(); ++letter)
      letter_cost_[letter] = std::log(all / seen[letter]);
    for (std::size_t word = 0; word < words.size(); ++word) {
      load(word);
      add({0, length_});
    }
  }

  std::vector<std::uint8_t> run() {
    std::vector<std::size_t> order(words_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::uint64_t state = settings_.seed;
    double before = total();
    for (int round = 0; round < settings_.most_rounds; ++round) {
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[next_random(state) % i]);
      for (const std::size_t word : order) split_word(word);
      const double after = total();
      if (before - after < settings_.least_gain * before) break;
      before = after;
    }
    return std::move(begins_);
  }

 private:
  struct Span {
    std::size_t begin, end;
  };

  static std::uint64_t next_random(std::uint64_t& state) {
    std::uint64_t z = (state += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

  // Prefix sums over the word in hand: spelling costs, and polynomial hashes modulo 2^61 - 1.
  void load(std::size_t word) {
    first_ = words_.begin[word];
    length_ = words_.length(word);
    spelling_.assign(length_ + 1, 0);
    hash_.assign(length_ + 1, 0);
    for (std::size_t i = 0; i < length_; ++i) {
      const std::uint32_t letter = words_.letters[first_ + i];
      spelling_[i + 1] = spelling_[i] + letter_cost_[letter];
      hash_[i + 1] = multiply(hash_[i], kBase) + letter + 1;
      if (hash_[i + 1] >= kModulus) hash_[i + 1] -= kModulus;
      if (power_.size() <= i + 1) power_.push_back(multiply(power_.back(), kBase));
    }
  }

  static std::uint64_t multiply(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    const std::uint64_t sum =
        static_cast<std::uint64_t>(product & kModulus) + static_cast<std::uint64_t>(product >> 61);
    return sum >= kModulus ? sum - kModulus : sum;
  }

  // Never 0, for 0 marks a free place.
  std::uint64_t key(Span s) const {
    const std::uint64_t prefix = multiply(hash_[s.begin], power_[s.end - s.begin]);
    const std::uint64_t hash =
        hash_[s.end] >= prefix ? hash_[s.end] - prefix : hash_[s.end] + kModulus - prefix;
    return hash + 1;
  }

  // Two nats say that the morph ends.
  double spelling(Span s) const { return spelling_[s.end] - spelling_[s.begin] + 2.0; }

  void add(Span s) {
    std::uint32_t& count = counts_.at(key(s));
    if (count == 0) {
      lexicon_ += spelling(s);
      morphs_ += 1;
    }
    used_log_ += x_log_x(count + 1.0) - x_log_x(count);
    ++count;
    tokens_ += 1;
  }

  void remove(Span s) {
    std::uint32_t& count = counts_.at(key(s));
    used_log_ += x_log_x(count - 1.0) - x_log_x(count);
    tokens_ -= 1;
    if (--count == 0) {
      lexicon_ -= spelling(s);
      morphs_ -= 1;
    }
  }

  // What does not depend on single morphs: `tokens` uses of `morphs` morphs. Words add one end each; the
  // frequencies are coded as one of the ways to share tokens among morphs, and the order of morphs is free.
  double frame(double tokens, double morphs) const {
    const auto words = static_cast<double>(words_.size());
    const double code = x_log_x(tokens + words) - x_log_x(words);
    const double frequencies =
        morphs > 1 ? x_log_x(tokens - 1) - x_log_x(morphs - 2) - x_log_x(tokens - morphs + 1) : 0;
    return settings_.corpus_weight * code + frequencies - (x_log_x(morphs) - morphs);
  }

  double total() const { return frame(tokens_, morphs_) - settings_.corpus_weight * used_log_ + lexicon_; }

  // The change that `s` makes apart from the frame; `before` counts uses that are being added with it.
  double own_cost(Span s, std::uint32_t before, int& new_morphs) const {
    const std::uint32_t count = counts_.count(key(s)) + before;
    double cost = -settings_.corpus_weight * (x_log_x(count + 1.0) - x_log_x(count));
    if (count == 0) {
      cost += spelling(s);
      ++new_morphs;
    }
    return cost;
  }

  void split_word(std::size_t word) {
    load(word);
    if (length_ < 2) return;
    std::size_t begin = 0;
    for (std::size_t i = 1; i <= length_; ++i) {
      if (i < length_ && begins_[first_ + i] == 0) continue;
      remove({begin, i});
      begin = i;
      if (i < length_) begins_[first_ + i] = 0;
    }
    split({0, length_});
  }

  // Adds the best split of a span that is not in the counts now.
  void split(Span span) {
    int new_morphs = 0;
    const double whole = own_cost(span, 0, new_morphs);
    double best_cost = whole + frame(tokens_ + 1, morphs_ + new_morphs);
    const double frame_two[3] = {frame(tokens_ + 2, morphs_), frame(tokens_ + 2, morphs_ + 1),
                                 frame(tokens_ + 2, morphs_ + 2)};
    std::size_t best = span.begin;
    for (std::size_t cut = span.begin + 1; cut < span.end; ++cut) {
      if (entropy_[first_ + cut] < settings_.gate_bits) continue;
      const Span left{span.begin, cut};
      const Span right{cut, span.end};
      new_morphs = 0;
      double cost = own_cost(left, 0, new_morphs);
      cost += own_cost(right, key(left) == key(right) ? 1 : 0, new_morphs);
      cost += frame_two[new_morphs];
      if (cost < best_cost) {
        best_cost = cost;
        best = cut;
      }
    }
    if (best == span.begin) {
      add(span);
      return;
    }
    begins_[first_ + best] = 1;
    const Span right{best, span.end};
    add(right);
    split({span.begin, best});
    remove(right);
    split(right);
  }

  static constexpr std::uint64_t kModulus = (1ULL << 61) - 1;
  static constexpr std::uint64_t kBase = 1'000'003'177ULL;

  const LetterWords& words_;
  const std::vector<float>& entropy_;
  const DescriptionSettings& settings_;
  std::vector<std::uint8_t> begins_;
  std::vector<double> letter_cost_;
  MorphCounts counts_;
  double tokens_ = 0, morphs_ = 0, used_log_ = 0, lexicon_ = 0;
  // The word in hand.
  std::size_t first_ = 0, length_ = 0;
  std::vector<double> spelling_;
  std::vector<std::uint64_t> hash_;
  std::vector<std::uint64_t> power_{1};
};

}  // namespace

std::vector<std::uint8_t> split_words(const LetterWords& words, const std::vector<float>& entropy,
                                      const DescriptionSettings& settings) {
  return Splitter(words, entropy, settings).run();
}

}  // namespace andrea
