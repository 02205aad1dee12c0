// Loss on held-out text, source by source. Reads weights, changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "engine/data/btok.h"
#include "engine/model/engine.h"

namespace andrea {

struct EvalResult {
  std::int64_t windows = 0;   ///< rows of `context` targets that were read
  double loss = 0;            ///< mean over their targets, nats
  double standard_error = 0;  ///< of that mean, over the windows; 0 with one window
  double bits_per_byte = 0;   ///< loss / ln 2 x (n_tokens + n_docs) / n_bytes of the file
};

/// DataError if the file is too short for one window of `context` targets.
void require_a_window(const BtokFile& file, std::int64_t context);

/// Evaluates at most `max_windows` windows (0: all) of the file. `keep_going` is asked between batches; the
/// result then covers what was read. DataError if the file holds no whole window or does not fit the model.
EvalResult evaluate(Engine& engine, const BtokFile& file, std::int64_t max_windows,
                    const std::function<bool()>& keep_going);

}  // namespace andrea
