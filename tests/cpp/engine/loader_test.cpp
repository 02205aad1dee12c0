#include "engine/data/loader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "engine/btok_bytes.h"
#include "engine/errors.h"
#include "engine/scratch_directory.h"

namespace andrea {
namespace {

using namespace andrea::testing;

TEST(Permutation, IsABijectionForEverySize) {
  for (std::int64_t n = 1; n <= 130; ++n)
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<std::int64_t> seen;
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t at = permuted(42, "chat", epoch, i, n);
        ASSERT_GE(at, 0);
        ASSERT_LT(at, n);
        seen.insert(at);
      }
      ASSERT_EQ(static_cast<std::int64_t>(seen.size()), n);
    }
}

TEST(Permutation, StaysInsideAHugeSource) {
  const std::int64_t n = (std::int64_t{1} << 47) + 12345;
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t at = permuted(1, "big", 5, n - 1 - i, n);
    ASSERT_GE(at, 0);
    ASSERT_LT(at, n);
    seen.insert(at);
  }
  EXPECT_EQ(seen.size(), 1000U);
}

TEST(Permutation, DependsOnSeedNameAndEpoch) {
  const auto order = [](std::uint32_t seed, const std::string& name, std::int64_t epoch) {
    std::vector<std::int64_t> documents;
    for (std::int64_t i = 0; i < 50; ++i) documents.push_back(permuted(seed, name, epoch, i, 50));
    return documents;
  };
  const auto base = order(42, "chat", 0);
  EXPECT_EQ(base, order(42, "chat", 0));
  EXPECT_NE(base, order(43, "chat", 0));
  EXPECT_NE(base, order(42, "irc", 0));
  EXPECT_NE(base, order(42, "chat", 1));
  EXPECT_NE(base, order(42, "chat", std::int64_t{1} << 32));
  std::vector<std::int64_t> sorted(50);
  std::iota(sorted.begin(), sorted.end(), 0);
  EXPECT_NE(base, sorted);
}

// Chi-square over all n! orders for small n: every order of 2, 3, 4 and 5 documents is equally likely.
TEST(Permutation, AllOrdersAreEquallyLikely) {
  constexpr int kEach = 50;
  const std::map<std::int64_t, double> orders{{2, 2}, {3, 6}, {4, 24}, {5, 120}};
  for (const auto& [n, count] : orders) {
    std::map<std::vector<std::int64_t>, int> seen;
    const int draws = static_cast<int>(count) * kEach;
    for (int epoch = 0; epoch < draws; ++epoch) {
      std::vector<std::int64_t> order;
      for (std::int64_t i = 0; i < n; ++i) order.push_back(permuted(7, "s", epoch, i, n));
      ++seen[order];
    }
    double chi2 = (count - static_cast<double>(seen.size())) * kEach;  // orders never seen
    for (const auto& [order, times] : seen) chi2 += (times - 1.0 * kEach) * (times - 1.0 * kEach) / kEach;
    const double freedom = count - 1;
    EXPECT_LT(chi2, freedom + 5 * std::sqrt(2 * freedom) + 5) << "n = " << n;
  }
}

// Where each document lands, and which document follows it, is even for a larger n.
TEST(Permutation, PlacesAndNeighboursAreEven) {
  const std::int64_t n = 40;
  const int epochs = 1000;
  std::vector<int> place(static_cast<std::size_t>(n * n)), step(static_cast<std::size_t>(n * n));
  for (int epoch = 0; epoch < epochs; ++epoch) {
    std::int64_t previous = -1;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t at = permuted(3, "s", epoch, i, n);
      ++place[static_cast<std::size_t>(i * n + at)];
      if (previous >= 0) ++step[static_cast<std::size_t>(previous * n + at)];
      previous = at;
    }
  }
  const auto chi2 = [](const std::vector<int>& counts, double expected, bool no_diagonal, std::int64_t size) {
    double sum = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (no_diagonal && static_cast<std::int64_t>(i) / size == static_cast<std::int64_t>(i) % size) continue;
      sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    return sum;
  };
  const double freedom = static_cast<double>((n - 1) * (n - 1));
  EXPECT_LT(chi2(place, epochs / 40.0, false, n), freedom + 6 * std::sqrt(2 * freedom));
  const double pairs = static_cast<double>(n * (n - 1));
  EXPECT_LT(chi2(step, epochs * 39.0 / pairs, true, n), pairs + 6 * std::sqrt(2 * pairs));
}

class LoaderTest : public ::testing::Test {
 protected:
  /// A loader over sources s0, s1, ... that hold the given documents.
  Loader make(const std::vector<Documents>& sources, std::int64_t context, std::uint32_t seed = 42) {
    std::vector<Loader::Source> opened;
    for (std::size_t k = 0; k < sources.size(); ++k) {
      const std::string path = directory_.file("s" + std::to_string(k) + ".btok");
      write_bytes(path, btok_bytes(sources[k]));
      opened.push_back({"s" + std::to_string(k), BtokFile(path)});
    }
    return Loader(std::move(opened), seed, context);
  }

  /// The ids of one source for `epochs` epochs, from the definition: permuted documents, BOS before each.
  static std::vector<std::int32_t> stream(const Documents& documents, const std::string& name,
                                          std::int64_t epochs, std::uint32_t seed = 42) {
    std::vector<std::int32_t> ids;
    const auto n = static_cast<std::int64_t>(documents.size());
    for (std::int64_t epoch = 0; epoch < epochs; ++epoch)
      for (std::int64_t i = 0; i < n; ++i) {
        const auto& document = documents[static_cast<std::size_t>(permuted(seed, name, epoch, i, n))];
        ids.push_back(kBos);
        ids.insert(ids.end(), document.begin(), document.end());
      }
    return ids;
  }

  ScratchDirectory directory_;
};

// Every id of every document is read exactly once an epoch, for lengths around k (T + 1).
TEST_F(LoaderTest, ReadsTheStreamWithoutGapsOrOverlap) {
  for (const std::int64_t context : {1, 2, 7, 8}) {
    const auto row = static_cast<std::size_t>(context + 1);
    std::vector<std::size_t> lengths;
    for (const std::size_t k : {1U, 2U, 3U})
      for (const int delta : {-2, -1, 0, 1})
        if (const auto length = static_cast<int>(k * row) + delta; length > 0)
          lengths.push_back(static_cast<std::size_t>(length));
    lengths.push_back(1);
    const Documents documents = documents_of_lengths(lengths);
    Loader loader = make({documents}, context);
    const std::vector<std::int32_t> expected = stream(documents, "s0", 4);
    std::vector<std::int32_t> read;
    std::int64_t consumed = 0;
    for (std::int64_t step = 0; read.size() + 3 * row <= expected.size(); ++step) {
      std::vector<std::int32_t> ids(3 * row);
      for (const Row& r : loader.next(step, 3, ids.data())) consumed += r.documents;
      read.insert(read.end(), ids.begin(), ids.end());
      ASSERT_EQ(consumed, std::count(read.begin(), read.end(), kBos));
      ASSERT_EQ(consumed, loader.documents_consumed(0));
      const Cursor& cursor = loader.cursors()[0];
      ASSERT_GE(cursor.offset, 0);
    }
    ASSERT_GT(read.size(), 3 * expected.size() / 4);
    EXPECT_EQ(read,
              std::vector<std::int32_t>(expected.begin(), expected.begin() + static_cast<long>(read.size())));
  }
}

TEST_F(LoaderTest, ACursorAtADocumentsEndStandsBeforeTheNext) {
  // One document of 3 ids: with BOS just one row of 4.
  Loader loader = make({documents_of_lengths({3, 3})}, 3);
  std::vector<std::int32_t> ids(4);
  loader.next(0, 1, ids.data());
  EXPECT_EQ(loader.cursors()[0], (Cursor{0, 1, 0}));
  loader.next(1, 1, ids.data());
  EXPECT_EQ(loader.cursors()[0], (Cursor{1, 0, 0}));
  EXPECT_EQ(loader.documents_consumed(0), 2);
}

TEST_F(LoaderTest, ARowLongerThanTheSourceGoesThroughSeveralEpochs) {
  Loader loader = make({documents_of_lengths({1, 2})}, 22);
  std::vector<std::int32_t> ids(23);
  const auto rows = loader.next(0, 1, ids.data());
  const auto expected = stream(documents_of_lengths({1, 2}), "s0", 6);
  EXPECT_EQ(ids, std::vector<std::int32_t>(expected.begin(), expected.begin() + 23));
  EXPECT_EQ(rows[0].documents, std::count(ids.begin(), ids.end(), kBos));
}

// Three resumes in a row, at every step, over epoch edges: the same rows as the unbroken run.
TEST_F(LoaderTest, ResumesAnywhere) {
  const std::vector<Documents> sources{documents_of_lengths({5, 9, 1, 7, 8}), documents_of_lengths({2, 3})};
  const std::int64_t context = 4, rows = 3;
  const std::size_t batch = static_cast<std::size_t>(rows * (context + 1));
  std::vector<std::vector<std::int32_t>> unbroken;
  std::vector<std::vector<Cursor>> cursors;
  std::vector<std::int64_t> drawn;
  Loader first = make(sources, context);
  for (std::int64_t step = 0; step < 40; ++step) {
    cursors.push_back(first.cursors());
    unbroken.emplace_back(batch);
    for (const Row& row : first.next(step, rows, unbroken.back().data())) drawn.push_back(row.source);
  }
  ASSERT_GT(first.cursors()[0].epoch, 1);
  for (std::size_t start = 0; start < 40; ++start) {
    Loader resumed = make(sources, context);
    resumed.set_cursors(cursors[start]);
    for (std::size_t step = start; step < 40; ++step) {
      std::vector<std::int32_t> ids(batch);
      const auto report = resumed.next(static_cast<std::int64_t>(step), rows, ids.data());
      ASSERT_EQ(ids, unbroken[step]) << "resumed at " << start;
      for (std::size_t r = 0; r < report.size(); ++r)
        ASSERT_EQ(report[r].source, drawn[step * static_cast<std::size_t>(rows) + r]);
      if ((step - start) % 5 == 4) {  // and again, from its own cursors
        const std::vector<Cursor> now = resumed.cursors();
        resumed.set_cursors(now);
      }
    }
  }
}

TEST_F(LoaderTest, DrawsByWeightAndNeverAtWeightZero) {
  Loader loader = make({documents_of_lengths({4}), documents_of_lengths({4}), documents_of_lengths({4})}, 1);
  loader.set_weights({3.0, 0.0, 1.0});
  std::vector<int> drawn(3);
  std::vector<std::int32_t> ids(2 * 50);
  const int steps = 400;
  for (std::int64_t step = 0; step < steps; ++step)
    for (const Row& row : loader.next(step, 50, ids.data())) ++drawn[static_cast<std::size_t>(row.source)];
  EXPECT_EQ(drawn[1], 0);
  const double n = 50.0 * steps;
  EXPECT_NEAR(drawn[0] / n, 0.75, 5 * std::sqrt(0.75 * 0.25 / n));
  EXPECT_EQ(loader.cursors()[1], Cursor{});
}

TEST_F(LoaderTest, TheDrawIsAFunctionOfStepAndRow) {
  const std::vector<Documents> sources{documents_of_lengths({4}), documents_of_lengths({4})};
  Loader one = make(sources, 1);
  Loader two = make(sources, 1);
  std::vector<std::int32_t> ids(2 * 8);
  two.next(0, 8, ids.data());
  std::vector<std::int64_t> a, b, c;
  for (const Row& row : one.next(9, 8, ids.data())) a.push_back(row.source);
  for (const Row& row : two.next(9, 8, ids.data())) b.push_back(row.source);
  for (const Row& row : two.next(10, 8, ids.data())) c.push_back(row.source);
  EXPECT_EQ(a, b);
  EXPECT_NE(b, c);
}

TEST_F(LoaderTest, RefusesImpossibleWeightsAndCursors) {
  Loader loader = make({documents_of_lengths({4}), documents_of_lengths({4})}, 1);
  EXPECT_THROW(loader.set_weights({1.0}), ConfigError);
  EXPECT_THROW(loader.set_weights({0.0, 0.0}), ConfigError);
  EXPECT_THROW(loader.set_weights({-1.0, 2.0}), ConfigError);
  EXPECT_THROW(loader.set_weights({NAN, 2.0}), ConfigError);
  EXPECT_THROW(loader.set_weights({INFINITY, 2.0}), ConfigError);
  EXPECT_THROW(loader.set_weights({1e308, 1e308}), ConfigError);
  EXPECT_EQ(loader.weights(), (std::vector<double>{1.0, 1.0}));
  EXPECT_THROW(loader.set_cursors({{}}), DataError);
  for (const Cursor& bad :
       {Cursor{-1, 0, 0}, Cursor{0, -1, 0}, Cursor{0, 1, 0}, Cursor{0, 0, -1}, Cursor{0, 0, 5}})
    EXPECT_THROW(loader.set_cursors({bad, {}}), DataError);
  loader.set_cursors({{3, 0, 4}, {}});
}

TEST_F(LoaderTest, RefusesAnEmptySource) {
  EXPECT_THROW(Loader({}, 1, 4), DataError);
  EXPECT_HAS(message_of<DataError>([&] { make({Documents{}}, 4); }), "has no documents");
}

TEST_F(LoaderTest, EvalWindowsShareOneIdAndLeaveTheRestOut) {
  for (const std::int64_t context : {1, 3, 4, 5, 50}) {
    const Documents documents = documents_of_lengths({3, 1, 4, 6});
    std::vector<std::int32_t> all;
    for (const auto& document : documents) {
      all.push_back(kBos);
      all.insert(all.end(), document.begin(), document.end());
    }
    const std::string path = directory_.file("eval.btok");
    write_bytes(path, btok_bytes(documents));
    const BtokFile file(path);
    const auto windows = (static_cast<std::int64_t>(all.size()) - 1) / context;
    for (std::int64_t first = 0; first <= windows + 1; ++first) {
      std::vector<std::int32_t> ids(static_cast<std::size_t>(3 * (context + 1)), -7);
      const std::int64_t rows = eval_rows(file, context, first, 3, ids.data());
      ASSERT_EQ(rows, std::max<std::int64_t>(0, std::min<std::int64_t>(3, windows - first)));
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j <= context; ++j)
          ASSERT_EQ(ids[static_cast<std::size_t>(r * (context + 1) + j)],
                    all[static_cast<std::size_t>((first + r) * context + j)]);
    }
  }
}

}  // namespace
}  // namespace andrea
