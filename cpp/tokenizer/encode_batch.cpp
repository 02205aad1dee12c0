#include "tokenizer/encode_batch.h"

#include <algorithm>
#include <cstring>

#include "tokenizer/parallel.h"

namespace andrea {

EncodedBatch encode_batch(const Tokenizer& tokenizer, const std::vector<std::string_view>& documents,
                          int threads) {
  // Neighbouring documents are encoded together in groups of about this many bytes.
  constexpr std::size_t kGroupBytes = 1U << 18;
  std::vector<std::size_t> first{0};
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    bytes += documents[i].size();
    if (bytes >= kGroupBytes || i + 1 == documents.size()) {
      first.push_back(i + 1);
      bytes = 0;
    }
  }
  const std::size_t groups = first.size() - 1;
  EncodedBatch batch;
  batch.offsets.assign(documents.size() + 1, 0);
  std::vector<std::vector<std::int32_t>> parts(groups);
  const std::size_t crew = thread_count(threads);
  parallel_for(groups, crew, [&](std::size_t group, std::size_t) {
    std::vector<std::int32_t>& ids = parts[group];
    for (std::size_t i = first[group]; i < first[group + 1]; ++i) {
      tokenizer.encode_append(documents[i], ids);
      batch.offsets[i + 1] = static_cast<std::int64_t>(ids.size());  // within the group, for now
    }
  });
  std::vector<std::int64_t> start(groups + 1, 0);
  for (std::size_t group = 0; group < groups; ++group)
    start[group + 1] = start[group] + static_cast<std::int64_t>(parts[group].size());
  batch.ids.resize(static_cast<std::size_t>(start[groups]));
  parallel_for(groups, crew, [&](std::size_t group, std::size_t) {
    for (std::size_t i = first[group]; i < first[group + 1]; ++i) batch.offsets[i + 1] += start[group];
    std::copy(parts[group].begin(), parts[group].end(), batch.ids.begin() + start[group]);
  });
  return batch;
}

}  // namespace andrea
