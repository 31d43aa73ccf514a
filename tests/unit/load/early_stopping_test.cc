#include "client/load/statistics/early_stopping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "tests/support/seeded.h"

namespace castor::load {
namespace {

// How likely at most `over` of `n` are above the limit, if each is with probability 1 - quantile:
// the sum that the incomplete beta function stands for.
double AtMostOver(double quantile, int64_t n, int64_t over) {
  double sum = 0;
  for (int64_t k = 0; k <= over; ++k) {
    const auto x = static_cast<double>(k), all = static_cast<double>(n);
    sum += std::exp(std::lgamma(all + 1) - std::lgamma(x + 1) - std::lgamma(all - x + 1) +
                    (all - x) * std::log(quantile) + x * std::log1p(-quantile));
  }
  return sum;
}

TEST(EarlyStopping, NeedsAsManyQueriesAsLoadGen) {
  EXPECT_EQ(QueriesNeeded(0.99, 0, 0.99), 459);
  EXPECT_EQ(QueriesNeeded(0.90, 0, 0.99), 44);
  EXPECT_EQ(QueriesNeeded(0.97, 0, 0.99), 152);    // ceil(ln 0.01 / ln 0.97)
  EXPECT_EQ(QueriesNeeded(0.999, 0, 0.99), 4603);  // ceil(ln 0.01 / ln 0.999)
  EXPECT_EQ(QueriesNeeded(0.99, 1, 0.99), 662);    // inference_rules' figure for MultiStream
}

TEST(EarlyStopping, IsTheTailOfABinomialDistribution) {
  const uint32_t seed = FreshSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    const double quantile = std::uniform_real_distribution<double>(0.5, 0.999)(random);
    const auto requests = static_cast<int64_t>(random() % 5000 + 1);
    const auto over = static_cast<int64_t>(random() % 50);
    if (over > requests) continue;
    EXPECT_NEAR(1 - ConfidenceWithin(quantile, requests, over),
                AtMostOver(quantile, requests, over), 1e-6)
        << quantile << " " << requests << " " << over;
    const int64_t needed = QueriesNeeded(quantile, over, 0.95);
    EXPECT_LE(AtMostOver(quantile, needed, over), 0.05 + 1e-9);
    EXPECT_GT(AtMostOver(quantile, needed - 1, over), 0.05 - 1e-9);
  }
}

TEST(EarlyStopping, HoldsAtTheEdges) {
  EXPECT_EQ(ConfidenceWithin(0.99, 0, 0), 0);
  EXPECT_EQ(ConfidenceWithin(0.99, 10, 10), 0);
  EXPECT_GT(QueriesNeeded(0.5, 0, 0.01), 0);
  EXPECT_EQ(QueriesNeeded(std::nextafter(1.0, 0.0), 1'000'000, 0.99), INT64_MAX);
  const int64_t needed = QueriesNeeded(0.99, 1'000'000, 0.99);
  EXPECT_NEAR(static_cast<double>(needed), 100'000'000, 300'000);
}

}  // namespace
}  // namespace castor::load
