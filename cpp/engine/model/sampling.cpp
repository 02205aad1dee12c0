// Choosing the next token. One routine on the host for every device: the same logits give the same token.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/errors.h"
#include "engine/hash/philox.h"
#include "engine/model/engine.h"

namespace andrea {
namespace {

void check(const Sampling& s) {
  if (!(s.temperature >= 0) || !std::isfinite(s.temperature))
    throw ConfigError("temperature must be 0 (the most likely token) or a positive number");
  if (s.top_k < 0) throw ConfigError("top_k must be 0 (all tokens) or a positive number");
  if (!(s.top_p > 0) || s.top_p > 1) throw ConfigError("top_p must lie above 0 and at most at 1");
  if (!(s.repetition_penalty > 0) || !std::isfinite(s.repetition_penalty))
    throw ConfigError("repetition_penalty must be a positive number (1: off)");
}

}  // namespace

std::int32_t choose_token(const float* logits, std::int64_t vocab, const Sampling& sampling,
                          std::uint64_t index, const std::vector<std::int32_t>& previous) {
  check(sampling);
  std::vector<double> score(logits, logits + vocab);
  for (double& s : score)
    if (std::isnan(s)) throw DeviceError("the model's logits are not numbers; its weights have diverged");
  if (sampling.repetition_penalty != 1) {
    std::vector<std::int32_t> seen(previous);
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const std::int32_t id : seen) {
      double& s = score[static_cast<std::size_t>(id)];
      s = s > 0 ? s / sampling.repetition_penalty : s * sampling.repetition_penalty;
    }
  }
  // Best first; equal scores by id, so that nothing depends on the sort.
  const auto better = [&score](std::int32_t a, std::int32_t b) {
    const double x = score[static_cast<std::size_t>(a)], y = score[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::vector<std::int32_t> order(static_cast<std::size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  if (sampling.temperature == 0) return *std::min_element(order.begin(), order.end(), better);
  const auto kept = static_cast<std::size_t>(sampling.top_k == 0 ? vocab : std::min(sampling.top_k, vocab));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), better);
  order.resize(kept);

  std::vector<double> weight(kept);
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    weight[i] =
        std::exp((score[static_cast<std::size_t>(order[i])] - score[static_cast<std::size_t>(order[0])]) /
                 sampling.temperature);
    total += weight[i];
  }
  if (sampling.top_p < 1) {
    double sum = 0;
    std::size_t n = 0;
    while (n < kept && sum < sampling.top_p * total) sum += weight[n++];
    order.resize(n);
    total = sum;
  }
  const auto words = Philox(sampling.seed, kSampling).at(index, sampling.nonce);
  double left = Philox::uniform(words[0], words[1]) * total;
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    left -= weight[i];
    if (left < 0) return order[i];
  }
  return order.back();
}

}  // namespace andrea
