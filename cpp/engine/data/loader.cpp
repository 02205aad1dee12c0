#include "engine/data/loader.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/errors.h"
#include "engine/hash/philox.h"
#include "engine/hash/xxh64.h"

namespace andrea {

// The swap-or-not shuffle (Hoang, Morris, Rogaway: "An enciphering scheme based on a card shuffle", CRYPTO
// 2012). A round pairs each x with k - x (mod n) and swaps the pair by one random bit of (round, larger of
// the two): a bijection for every n, without a table and without walking cycles.
std::int64_t permuted(std::uint32_t seed, const std::string& source, std::int64_t epoch,
                      std::int64_t position, std::int64_t n) {
  if (n <= 0 || position < 0 || position >= n)
    throw DataError("source " + source + ": place " + std::to_string(position) + " asked for, it has " +
                    std::to_string(n) + " documents");
  const auto size = static_cast<std::uint64_t>(n);
  const Philox philox(seed, kPermutations);
  const auto base = philox.at(xxh64(source.data(), source.size()), static_cast<std::uint64_t>(epoch));
  // Distinct (value, round) give distinct counters; the 128 bits of `base` keep sources and epochs apart.
  const auto draw = [&](std::uint64_t value, std::uint32_t round) {
    return philox({base[0] ^ static_cast<std::uint32_t>(value),
                   base[1] ^ static_cast<std::uint32_t>(value >> 32), base[2] ^ round, base[3]});
  };
  std::uint32_t rounds = 16;
  for (std::uint64_t rest = size - 1; rest > 0; rest >>= 1) rounds += 4;

  auto x = static_cast<std::uint64_t>(position);
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const auto words = draw(~std::uint64_t{0}, round);  // no document has that number
    const std::uint64_t k = (std::uint64_t{words[0]} << 32 | words[1]) % size;
    const std::uint64_t partner = k >= x ? k - x : k + size - x;
    if (draw(std::max(x, partner), round)[0] & 1U) x = partner;
  }
  return static_cast<std::int64_t>(x);
}

Loader::Loader(std::vector<Source> sources, std::uint32_t seed, std::int64_t context)
    : sources_(std::move(sources)),
      seed_(seed),
      context_(context),
      weights_(sources_.size(), 1.0),
      cursors_(sources_.size()) {
  if (sources_.empty())
    throw DataError("no data source to draw rows from; list at least one under data.sources");
  if (context_ < 1) throw DataError("context " + std::to_string(context_) + ": rows need at least one token");
  for (const Source& source : sources_)
    if (source.file.n_docs() == 0)
      throw DataError("source " + source.name + " (" + source.file.path() +
                      ") has no documents; leave it out or pack it again");
}

void Loader::set_weights(const std::vector<double>& weights) {
  if (weights.size() != sources_.size())
    throw ConfigError(std::to_string(weights.size()) + " weights given for " +
                      std::to_string(sources_.size()) + " sources");
  double total = 0;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    if (!std::isfinite(weights[k]) || weights[k] < 0)
      throw ConfigError("the weight of source " + sources_[k].name + " is " + std::to_string(weights[k]) +
                        "; weights are finite and not negative");
    total += weights[k];
  }
  if (!(total > 0) || !std::isfinite(total))
    throw ConfigError("the weights of the sources add up to " + std::to_string(total) +
                      "; at least one must be above 0, and the sum finite");
  weights_ = weights;
}

namespace {

/// The source whose share of [0, total) holds u * total; shares lie in config order.
std::size_t draw_source(const std::vector<double>& weights, double u) {
  double total = 0;
  for (const double weight : weights) total += weight;
  const double target = u * total;
  double sum = 0;
  std::size_t last = 0;
  for (std::size_t k = 0; k < weights.size(); ++k) {
    if (!(weights[k] > 0)) continue;
    sum += weights[k];
    last = k;
    if (target < sum) break;
  }
  return last;
}

}  // namespace

std::vector<Row> Loader::next(std::int64_t step, std::int64_t n_rows, std::int32_t* ids) {
  for (const Source& source : sources_) source.file.require_unchanged();
  const Philox philox(seed_, kRows);
  std::vector<Row> rows(static_cast<std::size_t>(n_rows));
  for (std::int64_t r = 0; r < n_rows; ++r) {
    const auto words = philox.at(static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(r));
    const std::size_t k = draw_source(weights_, Philox::uniform(words[0], words[1]));
    const Source& source = sources_[k];
    const BtokFile& file = source.file;
    Cursor& cursor = cursors_[k];
    Row& row = rows[static_cast<std::size_t>(r)];
    row.step = step;
    row.row = r;
    row.source = static_cast<std::int64_t>(k);

    std::int32_t* out = ids + r * (context_ + 1);
    std::int64_t left = context_ + 1;
    while (left > 0) {
      const std::int64_t doc = permuted(seed_, source.name, cursor.epoch, cursor.position, file.n_docs());
      const std::int64_t length = file.document_length(doc) + 1;  // with BOS
      if (cursor.offset == 0) {
        *out++ = kBos;
        --left;
        ++cursor.offset;
        ++row.documents;
      }
      const std::int64_t take = std::min(left, length - cursor.offset);
      file.copy_ids(file.document_begin(doc) + cursor.offset - 1, take, out);
      out += take;
      left -= take;
      cursor.offset += take;
      if (cursor.offset == length) {
        cursor.offset = 0;
        if (++cursor.position == file.n_docs()) {
          cursor.position = 0;
          ++cursor.epoch;
        }
      }
    }
  }
  return rows;
}

void Loader::set_cursors(const std::vector<Cursor>& cursors) {
  if (cursors.size() != sources_.size())
    throw DataError(std::to_string(cursors.size()) + " cursors given for " + std::to_string(sources_.size()) +
                    " sources");
  for (std::size_t k = 0; k < cursors.size(); ++k) {
    const Cursor& cursor = cursors[k];
    const Source& source = sources_[k];
    bool inside = cursor.epoch >= 0 && cursor.position >= 0 && cursor.position < source.file.n_docs() &&
                  cursor.offset >= 0;
    if (inside) {
      const std::int64_t doc =
          permuted(seed_, source.name, cursor.epoch, cursor.position, source.file.n_docs());
      inside = cursor.offset <= source.file.document_length(doc);
    }
    if (!inside)
      throw DataError("source " + source.name + " cannot be read on at epoch " +
                      std::to_string(cursor.epoch) + ", position " + std::to_string(cursor.position) +
                      ", offset " + std::to_string(cursor.offset) + ": " + source.file.path() +
                      " is not the file of that run");
  }
  cursors_ = cursors;
}

std::int64_t Loader::documents_consumed(std::int64_t k) const {
  const Cursor& cursor = cursors_.at(static_cast<std::size_t>(k));
  const std::int64_t n_docs = sources_[static_cast<std::size_t>(k)].file.n_docs();
  return cursor.epoch * n_docs + cursor.position + (cursor.offset > 0 ? 1 : 0);
}

std::int64_t eval_rows(const BtokFile& file, std::int64_t context, std::int64_t first, std::int64_t max_rows,
                       std::int32_t* ids) {
  // Document d begins at document_begin(d) + d of the stream: d BOS stand before it.
  const std::int64_t stream = file.n_tokens() + file.n_docs();
  const std::int64_t windows = stream > 0 ? (stream - 1) / context : 0;
  const std::int64_t rows = std::max<std::int64_t>(0, std::min(max_rows, windows - first));
  for (std::int64_t r = 0; r < rows; ++r) {
    std::int64_t at = (first + r) * context;
    std::int64_t low = 0;
    std::int64_t high = file.n_docs() - 1;
    while (low < high) {  // the last document that begins at or before `at`
      const std::int64_t middle = (low + high + 1) / 2;
      if (file.document_begin(middle) + middle <= at)
        low = middle;
      else
        high = middle - 1;
    }
    std::int32_t* out = ids + r * (context + 1);
    std::int64_t left = context + 1;
    for (std::int64_t doc = low; left > 0; ++doc) {
      const std::int64_t begin = file.document_begin(doc);
      std::int64_t offset = at - (begin + doc);
      if (offset == 0) {
        *out++ = kBos;
        --left;
        ++at;
        ++offset;
      }
      const std::int64_t take = std::min(left, file.document_length(doc) + 1 - offset);
      file.copy_ids(begin + offset - 1, take, out);
      out += take;
      left -= take;
      at += take;
    }
  }
  return rows;
}

}  // namespace andrea
