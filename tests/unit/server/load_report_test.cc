#include "server/metrics/load_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "xds/data/orca/v3/orca_load_report.pb.h"

namespace castor::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::DoubleNear;
using ::xds::data::orca::v3::OrcaLoadReport;

OrcaLoadReport Parse(const std::string& bytes) {
  OrcaLoadReport report;
  EXPECT_TRUE(report.ParseFromString(bytes));
  EXPECT_EQ(report.GetReflection()->GetUnknownFields(report).field_count(), 0);
  return report;
}

class LoadMeterTest : public testing::Test {
 protected:
  // A look 100 ms later, in which the device was busy for `busy` seconds and answered.
  void Look(double busy, uint64_t answered, uint64_t failed = 0) {
    now_ += milliseconds(100);
    sample_.busy_seconds += busy;
    sample_.answered += answered;
    sample_.failed += failed;
    meter_.Update(sample_, now_);
  }
  OrcaLoadReport Report() const { return Parse(meter_.Report()); }

  TimePoint now_{hours(1)};
  LoadSample sample_{.busy_seconds = 1000, .answered = 5000, .failed = 70};
  LoadMeter meter_{sample_, now_};
};

TEST_F(LoadMeterTest, BeginsIdleWhateverWasCountedBefore) {
  EXPECT_EQ(Report().application_utilization(), 0);
  EXPECT_EQ(Report().rps_fractional(), 0);
  EXPECT_EQ(Report().eps(), 0);
}

TEST_F(LoadMeterTest, TellsRatesAndTheBusyShare) {
  for (int look = 0; look < 100; ++look) Look(0.04, 20, 3);
  EXPECT_THAT(Report().application_utilization(), DoubleNear(0.4, 1e-3));
  EXPECT_THAT(Report().rps_fractional(), DoubleNear(230, 0.1));
  EXPECT_THAT(Report().eps(), DoubleNear(30, 0.1));
}

// What the balancer divides must not depend on how long the load has lasted.
TEST_F(LoadMeterTest, RequestsByUtilizationIsTheCapacityFromTheStart) {
  for (int look = 0; look < 30; ++look) {
    Look(0.04, 20);
    const OrcaLoadReport report = Report();
    EXPECT_THAT(report.rps_fractional() / report.application_utilization(), DoubleNear(500, 1e-6));
  }
}

TEST_F(LoadMeterTest, ForgetsWithinSeconds) {
  for (int look = 0; look < 100; ++look) Look(0.1, 20);
  for (int look = 0; look < 10; ++look) Look(0, 0);
  EXPECT_THAT(Report().application_utilization(), DoubleNear(std::exp(-1), 1e-3));
  now_ += hours(1);
  Look(0, 0);
  EXPECT_THAT(Report().application_utilization(), DoubleNear(0, 1e-9));
}

TEST_F(LoadMeterTest, WaitingWorkCountsOnTopAndTheRestStaysInBounds) {
  for (int look = 0; look < 100; ++look) Look(0.1, 20);
  sample_.queued_seconds = 5;
  sample_.memory_share = 1.5;
  Look(0.1, 20);
  EXPECT_THAT(Report().application_utilization(), DoubleNear(2, 1e-3));
  EXPECT_EQ(Report().named_metrics().at("castor_queued_seconds"), 5);
  EXPECT_EQ(Report().mem_utilization(), 1);
  sample_.queued_seconds = -1;
  sample_.memory_share = -1;
  Look(0.1, 20);
  EXPECT_THAT(Report().application_utilization(), DoubleNear(1, 1e-3));
  EXPECT_EQ(Report().mem_utilization(), 0);
}

TEST_F(LoadMeterTest, ALongBatchIsNoMoreThanBusy) {
  for (int look = 0; look < 20; ++look) Look(0, 0);
  Look(2, 1);  // began two seconds ago
  for (int look = 0; look < 19; ++look) {
    Look(0, 0);
    EXPECT_LE(Report().application_utilization(), 1);
  }
  EXPECT_THAT(Report().application_utilization(), DoubleNear(1 - std::exp(-2), 1e-3));
  Look(1e9, 1);
  for (int look = 0; look < 101; ++look) Look(0, 0);
  EXPECT_LT(Report().application_utilization(), 1 - 1e-3) << "bounded, whatever was counted";
}

TEST_F(LoadMeterTest, CountsThatFallAndAClockThatStandsDoNoHarm) {
  meter_.Update({}, now_);
  EXPECT_EQ(Report().application_utilization(), 0);
  meter_.Update({}, now_ + seconds(1));
  EXPECT_EQ(Report().application_utilization(), 0);
  EXPECT_EQ(Report().rps_fractional(), 0);
}

TEST(LoadOfTest, SumsTheEnginesCounts) {
  EngineStats stats;
  stats.work.resize(2);
  stats.work[0].requests = {{"vanilla", 3}};
  stats.work[0].compute_seconds.sum = 1.5;
  stats.work[1].requests = {{"vanilla", 3}, {"clustered", 1}};
  stats.work[1].compute_seconds.sum = 2;
  stats.load.queued_seconds = 0.25;
  stats.load.device_bytes = 10;
  stats.load.max_device_bytes = 40;
  for (const Reason reason :
       {Reason::kQueueFull, Reason::kOutOfMemory, Reason::kDeadlineExceeded, Reason::kInternal}) {
    stats.refusals.push_back({reason, 10});
  }
  for (const Reason reason : {Reason::kInvalidField, Reason::kTooLarge, Reason::kCancelled,
                              Reason::kModelNotFound, Reason::kDraining}) {
    stats.refusals.push_back({reason, 1});
  }
  const LoadSample sample = LoadOf(stats);
  EXPECT_EQ(sample.answered, 7U);
  EXPECT_EQ(sample.busy_seconds, 3.5);
  EXPECT_EQ(sample.queued_seconds, 0.25);
  EXPECT_EQ(sample.memory_share, 0.25);
  EXPECT_EQ(sample.failed, 40U);
  EXPECT_EQ(LoadOf({}).memory_share, 0) << "no bound is known";
}

TEST(LoadReportsTest, SamplesAtMostOnceInAHundredMilliseconds) {
  int samples = 0;
  const TimePoint start{hours(1)};
  LoadReports reports(
      [&] {
        ++samples;
        return LoadSample{.queued_seconds = static_cast<double>(samples)};
      },
      start);
  const auto queued = [&](milliseconds after) {
    return Parse(reports.Trailer(start + after)).named_metrics().at("castor_queued_seconds");
  };
  EXPECT_EQ(queued(milliseconds(0)), 1);
  EXPECT_EQ(queued(milliseconds(99)), 1);
  EXPECT_EQ(queued(milliseconds(100)), 2);
  EXPECT_EQ(queued(milliseconds(199)), 2);
  EXPECT_EQ(queued(seconds(3600)), 3);
  EXPECT_EQ(queued(seconds(3600)), 3);
  EXPECT_EQ(samples, 3);
}

TEST(LoadReportsTest, ThreadsSeeWholeReportsAndOneSamples) {
  std::atomic<int> sampling = 0;
  std::atomic<bool> overlapped = false;
  const TimePoint start{hours(1)};
  LoadReports reports(
      [&] {
        if (++sampling > 1) overlapped = true;
        std::this_thread::yield();
        --sampling;
        return LoadSample{.queued_seconds = 2};
      },
      start);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int call = 0; call < 500; ++call) {
        const OrcaLoadReport report = Parse(reports.Trailer(start + milliseconds(60 * call)));
        EXPECT_EQ(report.named_metrics().at("castor_queued_seconds"), 2);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(overlapped);
}

}  // namespace
}  // namespace castor::server
