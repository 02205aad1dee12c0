#include "apps/text_codec.h"

#include <string>
#include <vector>

#include "engine/errors.h"

namespace andrea {

TextCodec text_codec(const Tokenizer& tokenizer, const Experiment& experiment) {
  const std::int64_t vocab = tokenizer.vocab_size();
  if (vocab != experiment.model.vocab_size)
    throw ConfigError("model.vocab_size is " + std::to_string(experiment.model.vocab_size) +
                      ", but the tokenizer" +
                      (experiment.data.tokenizer.empty() ? "" : " " + experiment.data.tokenizer) + " has " +
                      std::to_string(vocab) + " ids (256 bytes + BOS + " +
                      std::to_string(vocab - Tokenizer::kFirstSegment) + " segments); write " +
                      std::to_string(vocab) + " or name another tokenizer");
  TextCodec codec;
  codec.encode = [&tokenizer](const std::string& text) { return tokenizer.encode(text); };
  codec.decode = [&tokenizer](const std::vector<std::int32_t>& ids) {
    return tokenizer.decode(ids.data(), ids.size());
  };
  codec.hash = tokenizer.hash();
  codec.vocab_size = vocab;
  return codec;
}

}  // namespace andrea
