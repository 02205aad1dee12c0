// Many documents at once, over several threads.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace andrea {

/// Documents after each other: document i is ids[offsets[i], offsets[i + 1]).
struct EncodedBatch {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> offsets;  ///< one more than documents, offsets[0] = 0
};

/// Encodes each document, without BOS. threads <= 0 takes all cores. The result does not depend on `threads`.
EncodedBatch encode_batch(const Tokenizer& tokenizer, const std::vector<std::string_view>& documents,
                          int threads);

}  // namespace andrea
