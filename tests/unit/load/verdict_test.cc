// Each rule passes once and fails once, alone.

#include "client/load/judge/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/seeded.h"
#include "tests/unit/load/made_run.h"

namespace castor::load {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A run that passes all rules: 60 s of 100 requests a second, 5 in flight.
RunData GoodRun(int seconds = 60) {
  RunData run = EmptyRun(seconds);
  for (int i = 0; i < seconds; ++i) {
    Count({.second = i}, run, 99);
    Count({.second = i, .latency = std::chrono::milliseconds(30)}, run, 1);
    run.seconds[i][0].in_flight = 5 + i % 3;
  }
  return run;
}

std::vector<std::string> Failed(const std::vector<Finding>& findings) {
  std::vector<std::string> rules;
  for (const Finding& finding : findings) {
    if (!finding.passed) rules.push_back(finding.rule);
    EXPECT_FALSE(finding.text.empty()) << finding.rule;
  }
  return rules;
}

std::vector<std::string> Failed(const RunData& run, const Rules& rules = {}) {
  return Failed(Judge(run, rules).validity);
}

std::string TextOf(const RunData& run, const std::string& rule, const Rules& rules = {}) {
  for (const Finding& finding : Judge(run, rules).validity) {
    if (finding.rule == rule) return finding.text;
  }
  return "no such rule";
}

TEST(Verdict, AGoodRunIsValidAndMet) {
  const Verdict verdict = Judge(GoodRun());
  EXPECT_THAT(Failed(verdict.validity), IsEmpty());
  EXPECT_THAT(Failed(verdict.objectives), IsEmpty());
  EXPECT_TRUE(verdict.valid());
  EXPECT_TRUE(verdict.met());
  std::vector<std::string> rules;
  for (const Finding& finding : verdict.validity) rules.push_back(finding.rule);
  EXPECT_THAT(rules,
              ElementsAre("duration", "early-stopping", "stationary", "client-lag", "client-cpu",
                          "client-dropped", "all-answered", "counts-agree", "verified"));
}

TEST(Verdict, Duration) {
  RunData run = GoodRun();
  run.clients[0].seconds = 9.5;
  const Verdict verdict = Judge(run);
  EXPECT_FALSE(verdict.valid());
  EXPECT_TRUE(verdict.met()) << "the other question";
  EXPECT_THAT(Failed(run), ElementsAre("duration"));
  EXPECT_EQ(TextOf(run, "duration"), "requests were sent for 9.5 s: run for at least 10 s");
  EXPECT_THAT(Failed(run, {.min_seconds = 9}), IsEmpty());
}

TEST(Verdict, EarlyStopping) {
  RunData run = EmptyRun(20);
  for (int i = 0; i < 20; ++i) Count({.second = i}, run, i == 0 ? 2 : 24);
  EXPECT_THAT(Failed(run), ElementsAre("early-stopping")) << "458 requests";
  EXPECT_THAT(TextOf(run, "early-stopping"),
              HasSubstr("class 'short' had 458 requests, and p99 at a confidence of 99 % takes 459 "
                        "or more: run for at least 21 s"));
  Count({.second = 1, .outcome = Outcome::kCancelled}, run);
  EXPECT_THAT(Failed(run), ElementsAre("early-stopping")) << "a cancelled one does not count";
  Count({.second = 1}, run);
  EXPECT_THAT(Failed(run), IsEmpty());
  // Without goals it is p99 of the whole run.
  run.objectives[0] = {};
  EXPECT_THAT(Failed(run), IsEmpty());
  EXPECT_THAT(Failed(run, {.confidence = 0.999}), ElementsAre("early-stopping"));
  EXPECT_THAT(TextOf(run, "early-stopping", {.confidence = 0.999}), HasSubstr("the run had 459"));
}

TEST(Verdict, WorkInFlightThatGrowsIsNoSteadyState) {
  RunData run = GoodRun();
  for (int i = 0; i < 60; ++i) run.seconds[i][0].in_flight = 5 + i + i % 5;
  EXPECT_THAT(Failed(run), ElementsAre("stationary"));
  EXPECT_THAT(TextOf(run, "stationary"), HasSubstr("work in flight grew by 60"));
  EXPECT_THAT(TextOf(run, "stationary"), HasSubstr("lower --rate"));
  run.open_loop = false;
  EXPECT_THAT(Failed(run), IsEmpty()) << "callers that begin one after the other are no queue";
  run.open_loop = true;
  for (int i = 0; i < 60; ++i) run.seconds[i][0].in_flight = i < 30 ? 0 : i % 2;
  EXPECT_THAT(Failed(run), IsEmpty()) << "one request more is no queue";
}

TEST(Verdict, LatencyThatGrowsIsNoSteadyState) {
  for (const bool open_loop : {true, false}) {
    RunData run = EmptyRun(60);
    run.open_loop = open_loop;
    for (int i = 0; i < 60; ++i) {
      Count({.second = i, .latency = std::chrono::microseconds(10'000 + 100 * i)}, run, 100);
    }
    EXPECT_THAT(Failed(run), ElementsAre("stationary"));
    EXPECT_THAT(TextOf(run, "stationary"), HasSubstr("latency grew by 6.00 ms"));
  }
}

TEST(Verdict, LagThatGrowsIsNoSteadyState) {
  RunData run = GoodRun();
  // A few requests only, so that the lag's percentile is small.
  for (int i = 0; i < 60; ++i) run.seconds[i][0].max_lag_ns = 100'000 * i;
  EXPECT_THAT(Failed(run), ElementsAre("stationary"));
  EXPECT_THAT(TextOf(run, "stationary"), HasSubstr("the client's lag grew by 6.00 ms"));
  EXPECT_THAT(TextOf(run, "stationary"), HasSubstr("add --workers"));
  for (int i = 0; i < 60; ++i) run.seconds[i][0].max_lag_ns = 10'000 * i;
  EXPECT_THAT(Failed(run), IsEmpty()) << "0.6 ms matter to nobody";
}

TEST(Verdict, ALoadThatGrowsMakesAllElseGrow) {
  RunData run = EmptyRun(60);
  for (int i = 0; i < 60; ++i) {
    Count({.second = i, .latency = std::chrono::milliseconds(10 + i / 2)}, run, 10 + 10 * i);
    run.seconds[i][0].in_flight = 10 * i;
  }
  EXPECT_THAT(Failed(run), IsEmpty());
  EXPECT_THAT(TextOf(run, "stationary"), HasSubstr("not checked: the load itself grows"));
}

TEST(Verdict, SteadyRunsThatWanderAreSeldomCalledUnsteady) {
  const uint32_t seed = FreshSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int alarms = 0;
  for (int i = 0; i < 100; ++i) {
    const RunData run = WanderingRun({.seconds = 60}, random());
    for (const std::string& rule : Failed(run)) alarms += rule == "stationary";
  }
  EXPECT_LE(alarms, 3);
}

TEST(Verdict, ClientLag) {
  RunData run = GoodRun();
  Count({.second = 3, .lag = std::chrono::microseconds(3100)}, run, 100);
  run.seconds[3][0].max_lag_ns = 0;  // the rule on the run's course is another
  EXPECT_THAT(Failed(run), ElementsAre("client-lag"));
  EXPECT_THAT(TextOf(run, "client-lag"),
              HasSubstr("p99 of the client's lag is 3.10 ms, more than 1.00 ms"));
  EXPECT_THAT(TextOf(run, "client-lag"), HasSubstr("lower --rate or add --workers"));
  EXPECT_THAT(Failed(run, {.max_lag_share = 0.5}), IsEmpty()) << "half of 10 ms";
  EXPECT_THAT(Failed(run, {.max_lag_ns = 4'000'000}), IsEmpty());
}

TEST(Verdict, ClientCpu) {
  RunData run = GoodRun();
  run.clients.push_back(run.clients[0]);
  run.clients[1].busiest_thread = 0.95;
  EXPECT_THAT(Failed(run), ElementsAre("client-cpu"));
  EXPECT_THAT(TextOf(run, "client-cpu"), HasSubstr("took 95 % of a core, more than 90 %"));
  run.clients[1].busiest_thread = 0.5;
  run.clients[0].calibrated_rate = 40;
  EXPECT_THAT(Failed(run), IsEmpty()) << "not all were calibrated";
  run.clients[1].calibrated_rate = 50;
  EXPECT_THAT(Failed(run), ElementsAre("client-cpu"));
  EXPECT_THAT(TextOf(run, "client-cpu"), HasSubstr("100 requests/s were asked for"));
  run.clients[1].calibrated_rate = 60;
  EXPECT_THAT(Failed(run), IsEmpty());
}

TEST(Verdict, ClientDropped) {
  RunData run = GoodRun();
  Count({.second = 3, .outcome = Outcome::kDropped}, run);
  EXPECT_THAT(Failed(run), ElementsAre("client-dropped"));
  EXPECT_THAT(TextOf(run, "client-dropped"), HasSubstr("1 requests (0.0167 % of those planned)"));
  EXPECT_THAT(Failed(run, {.max_dropped_share = 0.001}), IsEmpty());
}

TEST(Verdict, AllAnswered) {
  RunData run = GoodRun();
  run.clients[0].unfinished = 2;
  EXPECT_THAT(Failed(run), ElementsAre("all-answered"));
  EXPECT_THAT(TextOf(run, "all-answered"), HasSubstr("2 requests never ended"));
}

std::string Series(const std::string& code, const std::string& method = "attend") {
  return "castor_requests_total{code=\"" + code + "\",kernel=\"vanilla\",method=\"" + method +
         "\"}";
}

TEST(Verdict, CountsAgree) {
  RunData run = GoodRun();
  Count({.second = 3, .outcome = Outcome::kRefused}, run, 30);
  EXPECT_THAT(TextOf(run, "counts-agree"), HasSubstr("not checked: no metrics"));
  ServerCounts server;
  server.endpoint = "127.0.0.1:9090";
  server.before = {{Series("OK"), 7}, {Series("OK", "encode"), 1}, {Series("OK", "get_model"), 1}};
  server.after = {{Series("OK"), 4007},
                  {Series("OK", "encode"), 2001},
                  {Series("OK", "get_model"), 5},
                  {Series("RESOURCE_EXHAUSTED"), 20},
                  {Series("UNAVAILABLE", "encode"), 10},
                  {"castor_inflight_calls{method=\"attend\"}", 3}};
  run.servers = {server};
  EXPECT_THAT(Failed(run), IsEmpty());
  EXPECT_THAT(TextOf(run, "counts-agree"), HasSubstr("counted the same 6030 calls"));

  run.servers[0].after[Series("OK")] = 4006;
  EXPECT_THAT(Failed(run), ElementsAre("counts-agree"));
  EXPECT_THAT(TextOf(run, "counts-agree"),
              HasSubstr("127.0.0.1:50051: ok 6000 here and 5999 there"));
  run.servers[0].after[Series("OK")] = 4007;
  run.servers[0].after[Series("INTERNAL")] = 1;
  EXPECT_THAT(TextOf(run, "counts-agree"), HasSubstr("failed 0 here and 1 there"));
  run.servers[0].after[Series("INTERNAL")] = 0;
  run.servers[0].after[Series("OK")] = 6;
  EXPECT_THAT(TextOf(run, "counts-agree"), HasSubstr("its counters went back"));
}

TEST(Verdict, CallsThatTheClientEndedMayEndInAnyWayAtTheServer) {
  RunData run = GoodRun();
  Count({.second = 3, .outcome = Outcome::kCancelled}, run, 10);
  run.servers = {{.endpoint = "m", .before = {{Series("OK"), 0}}, .after = {}}};
  const auto failed = [&](double ok, double cancelled) {
    run.servers[0].after = {{Series("OK"), ok}, {Series("CANCELLED"), cancelled}};
    return !Failed(run).empty();
  };
  EXPECT_FALSE(failed(6000, 10));
  EXPECT_FALSE(failed(6004, 6)) << "answered, and the answer was not taken";
  EXPECT_FALSE(failed(6000, 4)) << "not begun";
  EXPECT_TRUE(failed(6000, 11));
  EXPECT_TRUE(failed(6011, 0));
  EXPECT_TRUE(failed(5999, 10)) << "an answer that the server does not know";
}

TEST(Verdict, CountsOfTheWarmUpCountToo) {
  RunData run = GoodRun();
  run.servers = {{.endpoint = "m", .before = {{Series("OK"), 0}}, .after = {{Series("OK"), 6500}}}};
  EXPECT_THAT(Failed(run), ElementsAre("counts-agree"));
  run.servers[0].calls = {6500};
  EXPECT_THAT(Failed(run), IsEmpty());
}

TEST(Verdict, Verified) {
  RunData run = GoodRun();
  EXPECT_THAT(TextOf(run, "verified"), HasSubstr("not checked"));
  Verified& verified = run.cells[0][0].verified;
  verified.asked = 60;
  EXPECT_THAT(Failed(run), ElementsAre("verified")) << "asked for, and nothing was compared";
  verified.equal = 60;
  verified.recomputed = 16;
  verified.error_e9.Record(100, 60);
  EXPECT_THAT(Failed(run), IsEmpty());
  EXPECT_THAT(TextOf(run, "verified"),
              HasSubstr("16 were computed here: relative error p50 1.00e-07"));
  verified.different = 1;
  EXPECT_THAT(Failed(run), ElementsAre("verified"));
  EXPECT_THAT(TextOf(run, "verified"), HasSubstr("1 have other bytes"));
}

TEST(Verdict, ALatencyGoalIsMetOnlyWithConfidence) {
  const auto findings = [](int above) {
    RunData run = EmptyRun(60);
    for (int i = 0; i < 60; ++i) Count({.second = i}, run, 100);
    if (above > 0) Count({.second = 5, .latency = std::chrono::milliseconds(51)}, run, above);
    return Judge(run).objectives;
  };
  EXPECT_THAT(Failed(findings(0)), IsEmpty());
  EXPECT_THAT(Failed(findings(40)), IsEmpty());
  EXPECT_THAT(Failed(findings(55)), ElementsAre("short: p99 <= 50.00 ms"));
  EXPECT_THAT(findings(55)[0].text,
              HasSubstr("55 of 6055 requests (0.908 %) took longer than 50.00 ms or got no OK "
                        "answer: too few to be 99 % sure of p99; run for at least "));
  EXPECT_THAT(Failed(findings(100)), ElementsAre("short: p99 <= 50.00 ms"));
  EXPECT_THAT(findings(100)[0].text, HasSubstr(", and 1 % may"));
}

TEST(Verdict, RequestsWithoutAnAnswerMissEveryGoalButCancelledOnes) {
  RunData run = GoodRun();
  Count({.second = 5, .outcome = Outcome::kCancelled}, run, 1000);
  EXPECT_TRUE(Judge(run).met());
  Count({.second = 5, .outcome = Outcome::kExpired}, run, 100);
  EXPECT_THAT(Failed(Judge(run).objectives),
              ElementsAre("short: p99 <= 50.00 ms", "short: errors <= 1 %"));
  EXPECT_THAT(Judge(run).objectives[1].text,
              HasSubstr("100 of 6100 requests (1.64 %) got no OK answer, and 1 % may"));
}

TEST(Verdict, AClassWithoutRequestsMeetsNothing) {
  const Verdict verdict = Judge(EmptyRun(60));
  EXPECT_FALSE(verdict.valid());
  EXPECT_FALSE(verdict.met());
  EXPECT_THAT(verdict.objectives[0].text, HasSubstr("no request of this class was sent"));
  RunData without_goals = EmptyRun(60);
  without_goals.objectives[0] = {};
  EXPECT_THAT(Judge(without_goals).objectives, IsEmpty());
}

}  // namespace
}  // namespace castor::load
