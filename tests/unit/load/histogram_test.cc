#include "client/load/results/histogram.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/seeded.h"

namespace castor::load {
namespace {

// The histogram's error for a value: 0.1 %, or one bucket of 512 ns.
int64_t Error(int64_t value) { return std::max<int64_t>(511, value / 1000); }

// The slow twin.
struct Sorted {
  std::vector<int64_t> values;

  int64_t ValueAt(double quantile) {
    std::sort(values.begin(), values.end());
    size_t rank = 1;
    // The first rank that covers `quantile` of all values.
    while (rank < values.size() &&
           static_cast<double>(rank) < quantile * static_cast<double>(values.size()) - 1e-9) {
      ++rank;
    }
    return values[rank - 1];
  }
};

class HistogramTest : public ::testing::Test, protected Seeded {
 protected:
  // A value from ns to an hour; each decade is equally likely.
  int64_t AnyValue() {
    const double decades = std::uniform_real_distribution<double>(0, 12.5)(random_);
    return static_cast<int64_t>(std::pow(10, decades));
  }
};

TEST_F(HistogramTest, FiguresAreThoseOfTheSortedValues) {
  for (const int n : {1, 2, 10, 1000, 4095, 4096, 4097, 20'000}) {
    SCOPED_TRACE(n);
    Histogram histogram;
    Sorted twin;
    double sum = 0;
    for (int i = 0; i < n; ++i) {
      const int64_t value = AnyValue();
      histogram.Record(value);
      twin.values.push_back(value);
      sum += static_cast<double>(value);
    }
    for (const double quantile : {0.0, 0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0}) {
      const int64_t exact = twin.ValueAt(quantile);
      EXPECT_GE(histogram.ValueAt(quantile), exact) << quantile;
      EXPECT_LE(histogram.ValueAt(quantile), exact + Error(exact)) << quantile;
    }
    EXPECT_EQ(histogram.count(), n);
    EXPECT_EQ(histogram.min(), twin.values.front());
    EXPECT_EQ(histogram.max(), twin.values.back());
    EXPECT_NEAR(histogram.mean(), sum / n, 1e-9 * sum / n);
    EXPECT_EQ(histogram.ValueAt(1), twin.values.back()) << "the maximum is exact";
  }
}

TEST_F(HistogramTest, AddingIsRecordingInOne) {
  for (const auto& [n, m] : {std::pair{0, 0},
                             {0, 10},
                             {10, 0},
                             {100, 200},
                             {4000, 200},
                             {200, 9000},
                             {9000, 200},
                             {9000, 9000}}) {
    Histogram a, b, both;
    for (int i = 0; i < n + m; ++i) {
      const int64_t value = AnyValue(), count = UpTo(10) == 1 ? UpTo(100) : 1;
      (i < n ? a : b).Record(value, count);
      both.Record(value, count);
    }
    a.Add(b);
    const auto flat = [](const Histogram& histogram) {
      std::vector<int64_t> all = {histogram.count(), histogram.min(), histogram.max(),
                                  histogram.sum()};
      for (const Histogram::Bucket& bucket : histogram.Buckets()) {
        all.insert(all.end(), {bucket.index, bucket.count});
      }
      return all;
    };
    EXPECT_EQ(flat(a), flat(both)) << n << " and " << m;
    EXPECT_EQ(a.ValueAt(0.5), both.ValueAt(0.5));
  }
}

TEST_F(HistogramTest, ValuesOutsideAreCutToTheEnds) {
  Histogram histogram;
  histogram.Record(-5);
  histogram.Record(INT64_MAX);
  histogram.Record(7, 0);
  EXPECT_EQ(histogram.count(), 2);
  EXPECT_EQ(histogram.min(), 0);
  EXPECT_EQ(histogram.max(), buckets::kHighestValue);
  histogram.Record(buckets::kHighestValue, INT64_MAX / 2);
  EXPECT_EQ(histogram.sum(), INT64_MAX) << "and not less than nothing";
}

TEST_F(HistogramTest, EmptyOnesSayZero) {
  const Histogram empty;
  EXPECT_TRUE(empty.empty());
  EXPECT_EQ(empty.min(), 0);
  EXPECT_EQ(empty.max(), 0);
  EXPECT_EQ(empty.mean(), 0);
  EXPECT_EQ(empty.ValueAt(0.99), 0);
}

TEST_F(HistogramTest, RanksOfQuantilesDoNotSlipByRounding) {
  // 0.07 * 100 is a little more than 7 in binary.
  Histogram histogram;
  for (int i = 1; i <= 100; ++i) histogram.Record(i * 1'000'000);
  for (int percent = 1; percent <= 100; ++percent) {
    const int64_t value = histogram.ValueAt(percent / 100.0);
    EXPECT_EQ(std::llround(static_cast<double>(value) / 1e6), percent);
  }
}

TEST_F(HistogramTest, ATimelineOfAnHourIsSmall) {
  const auto used = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  std::lognormal_distribution<double> latency(std::log(5e6), 0.8);
  const size_t before = used();
  std::vector<Histogram> timeline(3600 * 4);
  const size_t empty = used();
  EXPECT_LE(empty - before, timeline.size() * sizeof(Histogram) + 4096);
  // 5,000 requests a second in all. A tenth of the hour stands for it.
  for (size_t i = 0; i < timeline.size() / 10; ++i) {
    for (int k = 0; k < 1250; ++k) timeline[i].Record(static_cast<int64_t>(latency(random_)));
  }
  EXPECT_LE(10 * (used() - empty), size_t{64} << 20);
}

}  // namespace
}  // namespace castor::load
