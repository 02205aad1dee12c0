#include "tokenizer/selection.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tokenizer/parallel.h"

namespace andrea {
namespace {

using Cost = std::int64_t;
constexpr Cost kScale = 1024;  // cost of one id a unit of count

// The vocabulary under construction and what it costs.
class Selector {
 public:
  Selector(const SelectionInput& input, const CandidateTable& table, const SelectionSettings& settings)
      : types_(*input.types),
        input_(input),
        table_(table),
        threads_(std::min<std::size_t>(thread_count(settings.threads), 16)),
        chosen_(table.nodes(), 0) {
    milli_lambda_ =
        std::llround(settings.boundary_weight * input.mean_count * static_cast<double>(kScale) / 1000.0);
    for (std::size_t t = 0; t < types_.size(); t += kGroup) groups_.push_back(t);
  }

  std::size_t size() const { return size_; }

  void set(std::uint32_t node, bool on) {
    if ((chosen_[node] != 0) == on) return;
    chosen_[node] = on ? 1 : 0;
    size_ += on ? 1 : static_cast<std::size_t>(-1);
  }

  std::vector<std::uint32_t> chosen() const {
    std::vector<std::uint32_t> nodes;
    for (std::uint32_t node = 0; node < chosen_.size(); ++node)
      if (chosen_[node] != 0) nodes.push_back(node);
    return nodes;
  }

  void replace(const std::vector<std::uint32_t>& nodes) {
    std::fill(chosen_.begin(), chosen_.end(), 0);
    for (const std::uint32_t node : nodes) chosen_[node] = 1;
    size_ = nodes.size();
  }

  // For each node outside the vocabulary how much J would fall with it; to first order, one node at a time.
  std::vector<Cost> gains() {
    return sum_over_types([this](std::size_t, const Walk& walk, std::vector<Cost>& gain) {
      const std::size_t n = walk.places;
      for (std::size_t i = 0; i < n; i += walk.step[i]) {
        const std::uint32_t* match = table_.match(walk.first + i);
        const std::size_t longest = table_.matches(walk.first + i);
        // A character that falls into bytes has no match, and then every match is longer.
        for (std::size_t k = walk.matched[i]; k < longest; ++k)
          if (table_.allowed(match[k]))
            gain[match[k]] +=
                walk.cost[i] - (walk.id_cost + cut_cost(walk, i + k + 1) + walk.cost[i + k + 1]);
      }
    });
  }

  // For each node of the vocabulary how much J would rise without it. Sets total().
  std::vector<Cost> losses() {
    std::vector<Cost> totals(groups_.size(), 0);
    auto loss = sum_over_types(
        [this](std::size_t, const Walk& walk, std::vector<Cost>& sum) {
          for (std::size_t i = 0; i < walk.places; i += walk.step[i]) {
            if (walk.matched[i] == 0) continue;
            const std::uint32_t node = table_.match(walk.first + i)[walk.matched[i] - 1];
            if (used_before(walk, i, node)) continue;
            sum[node] += cost_without(walk, i, node) - walk.cost[i];
          }
        },
        &totals);
    total_ = std::accumulate(totals.begin(), totals.end(), Cost{0});
    return loss;
  }

  // J of the vocabulary at the last call of losses().
  Cost total() const { return total_; }

  // Uses of each node by the greedy encoder; the last entry counts ids that are single bytes.
  std::vector<Cost> uses() {
    auto count = sum_over_types([this](std::size_t type, const Walk& walk, std::vector<Cost>& sum) {
      for (std::size_t i = 0; i < walk.places; i += walk.step[i]) {
        if (walk.matched[i] > 0)
          sum[table_.match(walk.first + i)[walk.matched[i] - 1]] += types_[type].count;
        else
          sum.back() += types_[type].count * table_.char_bytes(walk.first + i);
      }
    });
    return count;
  }

 private:
  static constexpr std::size_t kGroup = 4096;  // types that one thread takes at a time

  // One type under the present vocabulary. cost[i] is that of the characters from i on if an id begins there.
  struct Walk {
    std::size_t first = 0;
    std::size_t places = 0;
    Cost id_cost = 0;
    std::size_t inner_begin = 0;  // cuts from here on are inside the word
    std::vector<Cost> cost;
    std::vector<std::uint8_t> matched;  // characters of the longest segment at i; 0: none
    std::vector<std::uint8_t> step;     // characters to the next id: at least 1
  };

  Cost cut_cost(const Walk& walk, std::size_t at) const {
    return at < walk.places ? input_.cut[walk.first + at] * milli_lambda_ : 0;
  }

  void load(std::size_t type, Walk& walk) const {
    walk.first = table_.type_begin(type);
    walk.places = table_.type_begin(type + 1) - walk.first;
    walk.id_cost = types_[type].count * kScale;
    walk.cost.assign(walk.places + 1, 0);
    walk.matched.assign(walk.places, 0);
    walk.step.assign(walk.places, 1);
    for (std::size_t i = walk.places; i-- > 0;) {
      const std::uint32_t* match = table_.match(walk.first + i);
      std::size_t k = table_.matches(walk.first + i);
      while (k > 0 && chosen_[match[k - 1]] == 0) --k;
      walk.matched[i] = static_cast<std::uint8_t>(k);
      const std::size_t next = i + std::max<std::size_t>(k, 1);
      walk.step[i] = static_cast<std::uint8_t>(next - i);
      const Cost ids = k > 0 ? 1 : table_.char_bytes(walk.first + i);
      walk.cost[i] = ids * walk.id_cost + cut_cost(walk, next) + walk.cost[next];
    }
  }

  bool used_before(const Walk& walk, std::size_t end, std::uint32_t node) const {
    for (std::size_t i = 0; i < end; i += walk.step[i])
      if (walk.matched[i] > 0 && table_.match(walk.first + i)[walk.matched[i] - 1] == node) return true;
    return false;
  }

  // Cost from place i on if `node` were not there.
  Cost cost_without(const Walk& walk, std::size_t i, std::uint32_t node) const {
    Cost cost = 0;
    while (i < walk.places) {
      const std::uint32_t* match = table_.match(walk.first + i);
      std::size_t k = walk.matched[i];
      if (k > 0 && match[k - 1] == node) {
        --k;
        while (k > 0 && chosen_[match[k - 1]] == 0) --k;
      }
      cost += (k > 0 ? 1 : table_.char_bytes(walk.first + i)) * walk.id_cost;
      i += std::max<std::size_t>(k, 1);
      cost += cut_cost(walk, i);
    }
    return cost;
  }

  // Walks all types; each thread adds into its own sums, which are added up at the end.
  template <class Add>
  std::vector<Cost> sum_over_types(Add add, std::vector<Cost>* totals = nullptr) {
    std::vector<std::vector<Cost>> sums(threads_);
    std::vector<Walk> walks(threads_);
    parallel_for(groups_.size(), threads_, [&](std::size_t group, std::size_t thread) {
      std::vector<Cost>& sum = sums[thread];
      Walk& walk = walks[thread];
      if (sum.empty()) sum.assign(table_.nodes() + 1, 0);
      const std::size_t end = std::min(types_.size(), groups_[group] + kGroup);
      for (std::size_t type = groups_[group]; type < end; ++type) {
        load(type, walk);
        add(type, walk, sum);
        if (totals != nullptr) (*totals)[group] += walk.cost[0];
      }
    });
    std::vector<Cost> sum(table_.nodes() + 1, 0);
    for (const std::vector<Cost>& one : sums)
      for (std::size_t i = 0; i < one.size(); ++i) sum[i] += one[i];
    return sum;
  }

  const std::vector<CountedType>& types_;
  const SelectionInput& input_;
  const CandidateTable& table_;
  std::size_t threads_;
  std::vector<std::uint8_t> chosen_;
  std::size_t size_ = 0;
  Cost milli_lambda_ = 0;  // a thousandth of lambda, at the scale of costs
  Cost total_ = 0;
  std::vector<std::size_t> groups_;
};

// Adds up to `count` nodes that gain most, ties by number. Returns how many.
std::size_t add_best(Selector& selector, std::size_t count) {
  const std::vector<Cost> gain = selector.gains();
  std::vector<std::uint32_t> nodes;
  for (std::uint32_t node = 0; node + 1 < gain.size(); ++node)
    if (gain[node] > 0) nodes.push_back(node);
  count = std::min(count, nodes.size());
  const auto better = [&gain](std::uint32_t a, std::uint32_t b) {
    return gain[a] != gain[b] ? gain[a] > gain[b] : a < b;
  };
  std::nth_element(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(count), nodes.end(), better);
  for (std::size_t i = 0; i < count; ++i) selector.set(nodes[i], true);
  return count;
}

// Takes the segments of least loss out until `size` are left, and whatever does harm.
void drop_worst(Selector& selector, std::size_t size) {
  const std::vector<Cost> loss = selector.losses();
  std::vector<std::uint32_t> nodes = selector.chosen();
  std::sort(nodes.begin(), nodes.end(), [&loss](std::uint32_t a, std::uint32_t b) {
    return loss[a] != loss[b] ? loss[a] < loss[b] : a > b;
  });
  for (const std::uint32_t node : nodes) {
    if (selector.size() <= size && loss[node] > 0) break;
    selector.set(node, false);
  }
}

void shrink(Selector& selector, std::size_t size) {
  for (int step = 3; step >= 1; --step) {
    const std::size_t over = selector.size() > size ? selector.size() - size : 0;
    drop_worst(selector, size + over * static_cast<std::size_t>(step - 1) / 3);
  }
}

}  // namespace

Selected select_segments(const SelectionInput& input, const CandidateTable& table,
                         const SelectionSettings& settings, const std::function<void(int, int)>& progress) {
  Selector selector(input, table, settings);
  const std::size_t wanted = settings.segments;
  const std::size_t roomy = wanted + wanted * 15 / 100 + 1;
  std::size_t aim = std::max<std::size_t>(64, wanted / 32);
  while (selector.size() < roomy) {
    if (add_best(selector, std::min(aim, roomy) - std::min(selector.size(), std::min(aim, roomy))) == 0)
      break;
    aim = std::max(aim, selector.size()) * 2;
  }
  shrink(selector, wanted);

  std::vector<std::uint32_t> best;
  Cost best_cost = 0;
  const auto keep_best = [&] {
    selector.losses();
    // A full vocabulary beats any that is short; then the cheaper wins.
    const bool better = best.empty() || selector.size() > best.size() ||
                        (selector.size() == best.size() && selector.total() < best_cost);
    if (!better) return;
    best = selector.chosen();
    best_cost = selector.total();
  };
  keep_best();
  double share = 0.12;
  for (int round = 0; round < settings.rounds; ++round) {
    if (progress) progress(round, settings.rounds);
    const auto extra = static_cast<std::size_t>(std::ceil(share * static_cast<double>(wanted)));
    const std::size_t room = wanted > selector.size() ? wanted - selector.size() : 0;
    if (add_best(selector, room + extra) == 0) break;
    shrink(selector, wanted);
    keep_best();
    share = std::max(0.01, share * 0.8);
  }
  selector.replace(best);
  // Rounds may end a few short, where the last drop took out what did harm: fill up one gain at a time.
  for (int attempt = 0; attempt < 64 && selector.size() < wanted; ++attempt)
    if (add_best(selector, std::max<std::size_t>(1, (wanted - selector.size() + 1) / 2)) == 0) break;

  const std::vector<Cost> loss = selector.losses();
  const std::vector<Cost> uses = selector.uses();
  std::vector<std::uint32_t> nodes = selector.chosen();
  std::sort(nodes.begin(), nodes.end(),
            [&](std::uint32_t a, std::uint32_t b) { return loss[a] != loss[b] ? loss[a] > loss[b] : a < b; });
  Selected found;
  found.ids = std::accumulate(uses.begin(), uses.end(), Cost{0});
  for (const std::uint32_t node : nodes) {
    found.segments.push_back(table.text(node));
    found.counts.push_back(uses[node]);
  }
  if (progress) progress(settings.rounds, settings.rounds);
  return found;
}

}  // namespace andrea
