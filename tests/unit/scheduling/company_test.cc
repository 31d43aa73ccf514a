// Whether it pays to wait for company, and what is learned from whether it came.
#include "engine/scheduling/company.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "tests/support/seeded.h"

namespace castor {
namespace {

using std::chrono::microseconds;

class CompanyForecastTest : public ::testing::Test, protected Seeded {
 protected:
  void Elapse(double us) { now_ += microseconds(static_cast<int64_t>(us)); }
  double WaitUs(double once_us, double own_us, size_t requests = 1) {
    return forecast_.WaitUs("key", {requests, once_us, own_us}, now_);
  }
  // After `rounds` decisions for a batch of one, company has come after so long; 0: never.
  void Learn(int rounds, double gap_us) {
    for (int i = 0; i < rounds; ++i) {
      WaitUs(4000, 500);
      Elapse(gap_us);
      if (gap_us > 0) forecast_.Came("key", now_);
      Elapse(100'000);
    }
  }

  CompanyForecast forecast_;
  TimePoint now_ = TimePoint(std::chrono::seconds(1000));
};

TEST_F(CompanyForecastTest, DoesNotWaitBeforeItKnows) { EXPECT_EQ(WaitUs(4000, 500), 0); }

TEST_F(CompanyForecastTest, WaitsWhereCompanyComesInTime) {
  Learn(20, 300);
  EXPECT_GT(WaitUs(4000, 500), 300);
  EXPECT_LE(WaitUs(4000, 500), 1750) << "as long as it pays at most";
}

TEST_F(CompanyForecastTest, DoesNotWaitForWhatComesTooLate) {
  Learn(20, 1800);
  EXPECT_EQ(WaitUs(4000, 500), 0);
}

TEST_F(CompanyForecastTest, DoesNotWaitWhereABatchSavesTooLittle) {
  Learn(20, 300);
  EXPECT_EQ(WaitUs(500, 500), 0) << "the next would wait no longer than this one is delayed";
  EXPECT_EQ(WaitUs(650, 500), 0) << "a sleeping thread wakes up too late";
  EXPECT_EQ(WaitUs(0, 0), 0) << "nothing is predicted";
}

TEST_F(CompanyForecastTest, BatchesOfOtherSizesHaveExperienceOfTheirOwn) {
  Learn(20, 300);
  EXPECT_EQ(WaitUs(4000, 1000, 2), 0);
}

TEST_F(CompanyForecastTest, ForgetsWhatIsTrueNoMore) {
  Learn(20, 300);
  Learn(20, 0);
  EXPECT_EQ(WaitUs(4000, 500), 0);
}

TEST_F(CompanyForecastTest, KeysHaveExperienceOfTheirOwnAndAreForgotten) {
  Learn(20, 300);
  EXPECT_EQ(forecast_.WaitUs("other", {1, 4000, 500}, now_), 0);
  EXPECT_GT(WaitUs(4000, 500), 0);
  for (int i = 0; i < 1000; ++i) forecast_.WaitUs(std::to_string(i), {1, 4000, 500}, now_);
  EXPECT_EQ(forecast_.keys(), 256u);
  EXPECT_EQ(WaitUs(4000, 500), 0) << "it is among those that were not used for longest";
}

// Independent callers: it pays to wait once they come often enough, as counted over all of them.
TEST_F(CompanyForecastTest, WaitsForIndependentCallersWhenTheyComeOftenEnough) {
  // A batch of one pays waits of at most 1750 us; the break-even lies where a wait that is in vain
  // as often as it is not costs what the others gain.
  for (const auto& [rate, waits] : {std::pair{20.0, false}, {100.0, false}, {3000.0, true}}) {
    CompanyForecast forecast;
    std::exponential_distribution<double> gap(rate * 1e-6);
    int waited = 0;
    const int rounds = 400;
    for (int i = 0; i < rounds; ++i) {
      waited += forecast.WaitUs("key", {1, 4000, 500}, now_) > 0;
      const double us = gap(random_);
      Elapse(us);
      forecast.Came("key", now_);
      Elapse(10'000);
    }
    if (waits) {
      EXPECT_GT(waited, rounds * 9 / 10);
    } else {
      EXPECT_LT(waited, rounds / 5) << rate << " a second";
    }
  }
}

}  // namespace
}  // namespace castor
