#include "engine/base/histogram.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

namespace castor {
namespace {

constexpr double kBounds[] = {1, 2, 4};

TEST(HistogramTest, BoundsAreInclusiveUpperEdges) {
  Histogram histogram(kBounds);
  for (double value : {0.0, 1.0, 1.5, 2.0, 4.0, 4.1, 1e9}) histogram.Observe(value);
  const HistogramSnapshot snapshot = histogram.Snapshot();
  EXPECT_EQ(snapshot.bounds, (std::vector<double>{1, 2, 4}));
  EXPECT_EQ(snapshot.counts, (std::vector<uint64_t>{2, 2, 1, 2}));
  EXPECT_EQ(snapshot.count(), 7u);
  EXPECT_DOUBLE_EQ(snapshot.sum, 0.0 + 1.0 + 1.5 + 2.0 + 4.0 + 4.1 + 1e9);
}

TEST(HistogramTest, DropsWhatWouldPoisonTheSum) {
  Histogram histogram(kBounds);
  histogram.Observe(std::numeric_limits<double>::quiet_NaN());
  histogram.Observe(-1);
  EXPECT_EQ(histogram.Snapshot().count(), 0u);
  EXPECT_EQ(histogram.Snapshot().sum, 0);
}

TEST(HistogramTest, LosesNothingBetweenThreads) {
  Histogram histogram(kBounds);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&histogram] {
      for (int n = 0; n < 10'000; ++n) histogram.Observe(n % 5);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const HistogramSnapshot snapshot = histogram.Snapshot();
  EXPECT_EQ(snapshot.counts, (std::vector<uint64_t>{16'000, 8'000, 16'000, 0}));
  EXPECT_EQ(snapshot.sum, 4 * 10'000 * 2);
}

}  // namespace
}  // namespace castor
