// What is concluded from pages: quantiles, rates, restarts, sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "client/top/histogram.h"
#include "client/top/rates.h"

namespace castor::top {
namespace {

using client::ParseMetrics;
using ::testing::DoubleNear;
using ::testing::IsEmpty;
using ::testing::Optional;

TEST(HistogramTest, InterpolatesAsPrometheusDoes) {
  Histogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5), std::nullopt);
  histogram.Add(0.1, 10);
  histogram.Add(0.2, 0);
  histogram.Add(0.4, 30);
  histogram.Add(HUGE_VAL, 0);
  EXPECT_THAT(histogram.Quantile(0.125), Optional(DoubleNear(0.05, 1e-12)));
  EXPECT_THAT(histogram.Quantile(0.25), Optional(DoubleNear(0.1, 1e-12)));
  EXPECT_THAT(histogram.Quantile(0.625), Optional(DoubleNear(0.3, 1e-12)));
  EXPECT_THAT(histogram.Quantile(1), Optional(DoubleNear(0.4, 1e-12)));
  EXPECT_FALSE(histogram.IsBeyond(0.99));
}

TEST(HistogramTest, BeyondTheLastBoundItIsThatBound) {
  Histogram histogram;
  histogram.Add(1, 9);
  histogram.Add(HUGE_VAL, 1);
  EXPECT_THAT(histogram.Quantile(0.95), Optional(1.0));
  EXPECT_TRUE(histogram.IsBeyond(0.95));
  EXPECT_FALSE(histogram.IsBeyond(0.5));
  histogram.Add(NAN, 5);
  histogram.Add(1, NAN);
  histogram.Add(1, -3);
  EXPECT_EQ(histogram.count(), 10) << "what makes no sense is left out";
}

std::string Page(double ok, double failed, double tokens, const std::string& more = "") {
  const auto text = [](double value) { return std::to_string(value) + "\n"; };
  return "castor_ready 1\nprocess_start_time_seconds 1000\n"
         "castor_requests_total{code=\"OK\",kernel=\"vanilla\",method=\"encode\"} " +
         text(ok) +
         "castor_requests_total{code=\"RESOURCE_EXHAUSTED\",kernel=\"none\",method=\"encode\"} " +
         text(failed) +
         "castor_requests_total{code=\"OK\",kernel=\"none\",method=\"get_server_info\"} 5\n"
         "castor_request_duration_seconds_bucket{kernel=\"none\",method=\"encode\",le=\"+Inf\"} 0\n"
         "castor_request_duration_seconds_bucket{kernel=\"vanilla\",method=\"encode\",le=\"0.1\"}"
         " " +
         text(ok / 2) +
         "castor_request_duration_seconds_bucket{kernel=\"vanilla\",method=\"encode\",le=\"0.2\"}"
         " " +
         text(ok) +
         "castor_request_duration_seconds_bucket{kernel=\"vanilla\",method=\"encode\",le=\"+Inf\"}"
         " " +
         text(ok) + "castor_tokens_total{kernel=\"vanilla\",operation=\"encode\"} " + text(tokens) +
         "castor_rejected_total{reason=\"QUEUE_FULL\"} " + text(failed) + more;
}

TEST(RatesTest, AreGrowthByTime) {
  const auto before = ParseMetrics(Page(100, 2, 5000)), after = ParseMetrics(Page(140, 4, 7000));
  const Rates rates = RatesOf(&before, after, 2, 1060);
  const WorkRates& work = rates.work.at({"encode", "vanilla"});
  EXPECT_EQ(work.requests, 20);
  EXPECT_EQ(work.tokens, 1000);
  EXPECT_EQ(work.total, 140);
  EXPECT_THAT(work.latency.Quantile(0.75), Optional(DoubleNear(0.15, 1e-12)));
  EXPECT_EQ(rates.work.at({"encode", "none"}).errors, 1);
  EXPECT_EQ(rates.work.size(), 2u) << "what does not compute is left out";
  EXPECT_EQ(rates.errors.at("RESOURCE_EXHAUSTED").per_second, 1);
  EXPECT_EQ(rates.errors.at("RESOURCE_EXHAUSTED").total, 4);
  EXPECT_EQ(rates.refusals.at("QUEUE_FULL").per_second, 1);
  EXPECT_THAT(rates.uptime, Optional(60));
  EXPECT_TRUE(rates.ready);
  EXPECT_EQ(rates.Sum().requests, 20);
}

TEST(RatesTest, OneReadingHasGaugesAndTotalsAlone) {
  const auto page = ParseMetrics(Page(140, 4, 7000, "castor_saturation_ratio 0.5\n"));
  const Rates rates = RatesOf(nullptr, page, 2, 1060);
  EXPECT_EQ(rates.seconds, 0);
  EXPECT_EQ(rates.Sum().requests, 0);
  EXPECT_EQ(rates.Sum().total, 144);
  EXPECT_EQ(rates.Sum().latency.count(), 0);
  EXPECT_THAT(rates.load.saturation, Optional(0.5));
}

TEST(RatesTest, WhatAServerDoesNotSayIsMissing) {
  const auto page = ParseMetrics("castor_ready 1\n");
  const Rates rates = RatesOf(&page, page, 1, 0);
  EXPECT_EQ(rates.load.saturation, std::nullopt);
  EXPECT_EQ(rates.memory.resident, std::nullopt);
  EXPECT_EQ(rates.uptime, std::nullopt);
  EXPECT_EQ(rates.processor, std::nullopt);
  EXPECT_TRUE(rates.healthy);
  EXPECT_THAT(rates.work, IsEmpty());
  EXPECT_THAT(rates.memory.others, IsEmpty());
}

TEST(RatesTest, ValuesThatAreNoNumbersAreMissing) {
  const auto page = ParseMetrics(
      "castor_saturation_ratio NaN\nprocess_resident_memory_bytes +Inf\n"
      "castor_request_duration_seconds_bucket{kernel=\"k\",method=\"m\",le=\"NaN\"} 4\n"
      "castor_request_duration_seconds_bucket{kernel=\"k\",method=\"m\",le=\"x\"} 4\n"
      "castor_request_duration_seconds_bucket{kernel=\"k\",method=\"m\",le=\"1\"} NaN\n");
  const client::MetricsPage none;
  const Rates rates = RatesOf(&none, page, 1, 0);
  EXPECT_EQ(rates.load.saturation, std::nullopt);
  EXPECT_EQ(rates.memory.resident, std::nullopt);
  EXPECT_EQ(rates.Sum().latency.Quantile(0.5), std::nullopt);
}

TEST(RatesTest, ASeriesThatIsNewWasAtZeroAndOneThatFallsDoesNotCount) {
  const auto before = ParseMetrics(Page(100, 2, 9000));
  const auto after = ParseMetrics(
      Page(100, 2, 7000, "castor_tokens_total{kernel=\"none\",operation=\"encode\"} 10\n"));
  const Rates rates = RatesOf(&before, after, 1, 1060);
  EXPECT_EQ(rates.work.at({"encode", "vanilla"}).tokens, 0);
  EXPECT_EQ(rates.work.at({"encode", "none"}).tokens, 10);
}

TEST(RatesTest, ARestartIsNoticed) {
  const auto before = ParseMetrics(Page(100, 2, 5000)), after = ParseMetrics(Page(140, 4, 7000));
  EXPECT_FALSE(HasRestarted(before, after));
  auto later = after;
  later["process_start_time_seconds"] += 60;
  EXPECT_TRUE(HasRestarted(before, later)) << "though its counters have grown beyond";
  // A server that does not say when it started.
  auto first = after, second = before;
  first.erase("process_start_time_seconds");
  second.erase("process_start_time_seconds");
  EXPECT_TRUE(HasRestarted(first, second));
  EXPECT_FALSE(HasRestarted(second, first));
}

TEST(RatesTest, QuickRefusalsDoNotHideHowLongTheOthersTake) {
  Rates rates;
  rates.work[{"encode", "vanilla"}].latency.Add(1, 10);
  rates.work[{"encode", "none"}].latency.Add(0.001, 1000);
  rates.work[{"encode", "none"}].errors = 1000;
  EXPECT_EQ(rates.Sum().latency.count(), 10);
  EXPECT_EQ(rates.Sum().errors, 1000);
  Rates all = rates;
  AddTo(rates, &all);
  EXPECT_EQ(all.Sum().latency.count(), 20);
}

TEST(RatesTest, MemoryOfEveryKindIsTaken) {
  const auto page = ParseMetrics(
      "castor_staging_memory_bytes{state=\"in_use\"} 1\n"
      "castor_staging_memory_bytes{state=\"cached\"} 2\n"
      "castor_message_bytes{direction=\"in\"} 3\n"
      "castor_run_memory_bytes{kind=\"activations\"} 5\n"
      "castor_model_weights_bytes{device=\"cpu\",model=\"minilm\"} 4\n");
  const MemoryGauges memory = RatesOf(nullptr, page, 0, 0).memory;
  EXPECT_THAT(memory.staging_used, Optional(1));
  EXPECT_THAT(memory.staging_cached, Optional(2));
  EXPECT_EQ(memory.others.at("messages in"), 3);
  EXPECT_EQ(memory.others.at("activations"), 5);
  EXPECT_EQ(memory.others.at("weights of minilm"), 4);
}

TEST(RatesTest, SeveralServersAreSummed) {
  const auto before = ParseMetrics(Page(0, 0, 0));
  const auto a =
      ParseMetrics(Page(100, 2, 0, "castor_saturation_ratio 0.2\ncastor_queue_depth 3\n"));
  const auto b =
      ParseMetrics(Page(50, 0, 0, "castor_saturation_ratio 0.8\ncastor_queue_depth 4\n"));
  Rates all = RatesOf(&before, a, 1, 0);
  AddTo(RatesOf(&before, b, 1, 0), &all);
  EXPECT_EQ(all.servers, 2);
  EXPECT_EQ(all.Sum().requests, 150);
  EXPECT_EQ(all.Sum().latency.count(), 150);
  EXPECT_THAT(all.load.saturation, Optional(0.8));
  EXPECT_THAT(all.load.queue_depth, Optional(7));
  EXPECT_EQ(all.refusals.at("QUEUE_FULL").total, 2);
}

}  // namespace
}  // namespace castor::top
