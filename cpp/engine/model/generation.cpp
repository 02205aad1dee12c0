// Generation: several texts at once through the cache of keys and values.
//
// All texts stand at the same position: each begins at 0, one that still reads its prompt takes the prompt's
// next id where another takes the id it has just chosen. So prompts of any lengths need neither padding nor a
// mask, and every text sees exactly what it would see alone. The context fills for all at the same moment.
#include <algorithm>
#include <memory>

#include "engine/errors.h"
#include "engine/model/engine.h"

namespace andrea {
namespace {

struct Text {
  std::vector<std::int32_t> ids;  // BOS, prompt, what was written
  std::size_t next = 0;           // first id the cache does not hold
  std::vector<std::int32_t> written;
  bool done = false;

  // Starts anew at position 0 with the last `keep` ids.
  void keep_last(std::int64_t keep) {
    next = ids.size() - std::min(static_cast<std::size_t>(keep), ids.size());
  }
};

}  // namespace

std::vector<std::vector<std::int32_t>> Engine::generate(const std::vector<GenerationRequest>& requests,
                                                        const OnToken& on_token) {
  require_idle("generate");
  require_no_generation("generate");
  generating_ = true;
  const std::unique_ptr<bool, void (*)(bool*)> ended(&generating_, [](bool* flag) { *flag = false; });
  const std::int64_t context = shape_.context, keep = std::max<std::int64_t>(1, context / 2);
  std::vector<Text> all(requests.size());
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const std::vector<std::int32_t>& prompt = requests[r].prompt;
    check_ids(prompt.data(), static_cast<std::int64_t>(prompt.size()));
    Text& text = all[r];
    if (shape_.vocab > kBos) text.ids.push_back(kBos);
    text.ids.insert(text.ids.end(), prompt.begin(), prompt.end());
    if (text.ids.empty())
      throw ConfigError("generate: this vocabulary has no BOS (256), so the prompt must not be empty");
    if (static_cast<std::int64_t>(text.ids.size()) > context) text.keep_last(keep);
    text.done = requests[r].n <= 0;
  }

  const auto at_once = static_cast<std::size_t>(plan().request.sequences);
  std::vector<std::int32_t> inputs;
  std::vector<float> logits;
  bool stopped = false;
  for (std::size_t first = 0; first < all.size() && !stopped; first += at_once) {
    const std::size_t S = std::min(at_once, all.size() - first);
    Text* texts = all.data() + first;
    inputs.resize(S);
    logits.resize(S * static_cast<std::size_t>(shape_.vocab));
    std::int64_t position = S == 1 ? skip_cached(texts[0].ids, &texts[0].next) : 0;
    cached_.resize(static_cast<std::size_t>(position));
    while (!stopped && std::any_of(texts, texts + S, [](const Text& t) { return !t.done; })) {
      if (position == context) {
        for (std::size_t s = 0; s < S; ++s) texts[s].keep_last(keep);
        cached_.clear();
        position = 0;
      }
      // A finished text keeps its place; what is computed for it is not looked at.
      for (std::size_t s = 0; s < S; ++s) inputs[s] = texts[s].done ? 0 : texts[s].ids[texts[s].next++];
      model_->decode(inputs.data(), static_cast<std::int64_t>(S), static_cast<std::int32_t>(position++),
                     logits.data());
      if (S == 1) cached_.push_back(inputs[0]);
      bool chose = false;
      for (std::size_t s = 0; s < S && !stopped; ++s) {
        Text& text = texts[s];
        if (text.done || text.next < text.ids.size()) continue;
        const GenerationRequest& request = requests[first + s];
        const std::int32_t id = choose_token(logits.data() + s * static_cast<std::size_t>(shape_.vocab),
                                             shape_.vocab, request.sampling, text.written.size(), text.ids);
        chose = true;
        text.ids.push_back(id);
        text.written.push_back(id);
        const bool go_on = !on_token || on_token(first + s, id);
        text.done = !go_on || static_cast<std::int64_t>(text.written.size()) >= request.n;
      }
      // A long prompt must be as interruptible as the tokens after it.
      if (!chose && on_token) stopped = !on_token(first, -1);
    }
  }
  std::vector<std::vector<std::int32_t>> written;
  for (Text& text : all) written.push_back(std::move(text.written));
  return written;
}

std::int64_t Engine::skip_cached(const std::vector<std::int32_t>& ids, std::size_t* next) const {
  // The last id is read in any case: its logits choose what follows.
  std::size_t same = 0;
  while (same < cached_.size() && *next + same + 1 < ids.size() && cached_[same] == ids[*next + same]) ++same;
  *next += same;
  return static_cast<std::int64_t>(same);
}

void Engine::decode_logits(const std::int32_t* ids, std::int64_t B, std::int64_t T, float* out) {
  require_idle("decode_logits");
  require_no_generation("decode_logits");
  const std::int64_t at_once = plan().request.sequences, V = shape_.vocab;
  if (T < 1 || T > shape_.context || B < 1 || B > at_once)
    throw ConfigError("decode_logits: ids must be [B, T] with B from 1 to " + std::to_string(at_once) +
                      " (sequences) and T from 1 to " + std::to_string(shape_.context));
  check_ids(ids, B * T);
  cached_.clear();
  std::vector<std::int32_t> inputs(static_cast<std::size_t>(B));
  std::vector<float> logits(static_cast<std::size_t>(B * V));
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t b = 0; b < B; ++b) inputs[static_cast<std::size_t>(b)] = ids[b * T + t];
    model_->decode(inputs.data(), B, static_cast<std::int32_t>(t), logits.data());
    for (std::int64_t b = 0; b < B; ++b) std::copy_n(logits.data() + b * V, V, out + (b * T + t) * V);
  }
}

std::vector<std::int32_t> Engine::generate(const std::vector<std::int32_t>& prompt, std::int64_t n,
                                           const Sampling& sampling,
                                           const std::function<bool(std::int32_t)>& keep_going) {
  OnToken on_token;
  if (keep_going) on_token = [&](std::size_t, std::int32_t id) { return keep_going(id); };
  return generate({{prompt, n, sampling}}, on_token)[0];
}

}  // namespace andrea
