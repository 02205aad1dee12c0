// Endless streams of documents, and the rows a step takes from them.
//
// Each source is read in a fresh permutation of its documents every epoch, BOS (256) before each document.
// The permutation is a function of (seed, source name, epoch), so the whole state of a source is three
// integers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/btok.h"

namespace andrea {

constexpr std::int32_t kBos = 256;

/// Where a source will be read next: ids already taken of document number `position` of the epoch's order,
/// its BOS counted as the first.
struct Cursor {
  std::int64_t epoch = 0;
  std::int64_t position = 0;
  std::int64_t offset = 0;
  friend bool operator==(const Cursor& a, const Cursor& b) {
    return a.epoch == b.epoch && a.position == b.position && a.offset == b.offset;
  }
};

/// Which document stands at `position` of epoch `epoch`: a bijection of 0..n-1 that needs no table.
std::int64_t permuted(std::uint32_t seed, const std::string& source, std::int64_t epoch,
                      std::int64_t position, std::int64_t n);

/// One row of a step, as it will be reported.
struct Row {
  std::int64_t step = 0;
  std::int64_t row = 0;  ///< 0..micro_batches*B-1
  std::int64_t source = 0;
  std::int64_t documents = 0;  ///< documents whose BOS this row's T+1 ids read: consumed by it
  float loss = 0;              ///< mean over the row, nats; set after the step
};

class Loader {
 public:
  struct Source {
    std::string name;
    BtokFile file;
  };

  /// DataError if there is no source.
  Loader(std::vector<Source> sources, std::uint32_t seed, std::int64_t context);

  /// Relative weights, one a source: >= 0, finite, one of them > 0 (ConfigError). Used from the next row on.
  void set_weights(const std::vector<double>& weights);
  const std::vector<double>& weights() const { return weights_; }

  /// Fills ids [n_rows, T+1] for step `step` and moves the cursors; the rows are reported in order.
  std::vector<Row> next(std::int64_t step, std::int64_t n_rows, std::int32_t* ids);

  const std::vector<Source>& sources() const { return sources_; }
  const std::vector<Cursor>& cursors() const { return cursors_; }
  /// DataError if a cursor is outside its source.
  void set_cursors(const std::vector<Cursor>& cursors);
  /// Documents consumed by source `k` over its life: epoch * n_docs + those begun in this epoch.
  std::int64_t documents_consumed(std::int64_t k) const;

 private:
  std::vector<Source> sources_;
  std::uint32_t seed_;
  std::int64_t context_;
  std::vector<double> weights_;
  std::vector<Cursor> cursors_;
};

/// The rows of an evaluation: documents in file order, BOS before each, cut into non-overlapping windows that
/// share one id (window i is ids [i*T, (i+1)*T] inclusive); the last incomplete window is left out.
/// Returns the number of windows written to ids [max_rows, T+1], starting at window `first`.
std::int64_t eval_rows(const BtokFile& file, std::int64_t context, std::int64_t first, std::int64_t max_rows,
                       std::int32_t* ids);

}  // namespace andrea
