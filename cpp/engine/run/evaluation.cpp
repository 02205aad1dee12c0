#include "engine/run/evaluation.h"

#include <cmath>
#include <limits>
#include <vector>

#include "engine/errors.h"

namespace andrea {

void require_a_window(const BtokFile& file, std::int64_t context) {
  if (file.n_tokens() + file.n_docs() <= context)
    throw DataError(file.path() + ": holds fewer than context + 1 = " + std::to_string(context + 1) +
                    " ids, too few to evaluate on; hold out more documents, or leave this eval out");
}

EvalResult evaluate(Engine& engine, const BtokFile& file, std::int64_t max_windows,
                    const std::function<bool()>& keep_going) {
  if (file.vocab_size() != engine.shape().vocab)
    throw DataError(file.path() + ": packed for a vocabulary of " + std::to_string(file.vocab_size()) +
                    " entries, but the model has " + std::to_string(engine.shape().vocab));
  require_a_window(file, engine.shape().context);
  const std::int64_t context = engine.shape().context, batch = engine.plan().request.batch;
  const std::int64_t limit = max_windows > 0 ? max_windows : std::numeric_limits<std::int64_t>::max();
  std::vector<std::int32_t> ids(static_cast<std::size_t>(batch * (context + 1)));
  std::vector<double> rows(static_cast<std::size_t>(batch));
  EvalResult result;
  double sum = 0, squares = 0;
  while (result.windows < limit) {
    file.require_unchanged();
    const std::int64_t n =
        eval_rows(file, context, result.windows, std::min(batch, limit - result.windows), ids.data());
    if (n == 0) break;
    engine.row_losses(ids.data(), n, context, rows.data());
    for (std::int64_t i = 0; i < n; ++i) {
      sum += rows[static_cast<std::size_t>(i)];
      squares += rows[static_cast<std::size_t>(i)] * rows[static_cast<std::size_t>(i)];
    }
    result.windows += n;
    if (keep_going && !keep_going()) break;
  }
  const double n = static_cast<double>(result.windows);
  result.loss = sum / n;
  if (result.windows > 1)
    result.standard_error = std::sqrt(std::max(0.0, squares / n - result.loss * result.loss) / (n - 1));
  result.bits_per_byte = result.loss / std::log(2.0) * static_cast<double>(file.n_tokens() + file.n_docs()) /
                         static_cast<double>(file.n_bytes());
  return result;
}

}  // namespace andrea
