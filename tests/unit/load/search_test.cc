// find-rate and sweep, with formulas for servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "client/cli/command.h"
#include "client/load/commands/command.h"
#include "client/load/search/find_rate.h"
#include "client/load/search/sweep.h"
#include "client/load/workload/parse.h"
#include "tests/unit/load/made_run.h"

namespace castor::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

const std::atomic<bool> kNever = false;

// Answers 1 % and `more` of the requests late, where the rate is above `limit`.
RunData RunAtRate(double rate, std::chrono::nanoseconds duration, double limit) {
  const auto length = static_cast<int>(duration / seconds(1));
  RunData run = EmptyRun(length);
  run.asked_rate = rate;
  for (int i = 0; i < length; ++i) {
    const auto each = static_cast<int64_t>(std::ceil(rate));
    const bool late = rate > limit;
    Count({.second = i, .latency = milliseconds(10)}, run, late ? each - each / 10 : each);
    if (late) Count({.second = i, .latency = milliseconds(90)}, run, each / 10);
  }
  return run;
}

FoundRate Find(
    double limit, const SearchOptions& options,
    const std::function<Verdict(const RunData&)>& judge = [](const RunData& run) {
      return Judge(run);
    }) {
  return FindRate([&](double rate, auto duration) { return RunAtRate(rate, duration, limit); },
                  judge, options, {}, kNever);
}

TEST(FindRate, EndsWithinTheToleranceOfTheEdge) {
  for (const double start : {50.0, 700.0, 9000.0}) {
    const FoundRate found = Find(1234, {.start_rate = start});
    EXPECT_EQ(found.exit_code, kMet) << found.text;
    EXPECT_LE(found.met, 1234);
    EXPECT_GE(found.met, 1234 / 1.03);
    EXPECT_GT(found.missed, 1234);
    EXPECT_TRUE(found.run.has_value());
    EXPECT_TRUE(found.probes.back().confirms);
  }
}

TEST(FindRate, AMissHasItsReason) {
  const FoundRate found = Find(500, {.start_rate = 400});
  for (const Probe& probe : found.probes) {
    EXPECT_EQ(probe.result == ProbeResult::kMet, probe.failed.empty());
    if (probe.result == ProbeResult::kMet) continue;
    EXPECT_THAT(probe.failed.at(0).text, HasSubstr("took longer than 50.0 ms"));
  }
}

TEST(FindRate, SaysWhenNoRateOrEveryRateMeets) {
  EXPECT_EQ(Find(0, {.start_rate = 100, .least_rate = 50}).exit_code, kMissed);
  const FoundRate all = Find(1e9, {.start_rate = 100, .greatest_rate = 400});
  EXPECT_EQ(all.exit_code, kMet);
  EXPECT_EQ(all.met, 400);
}

TEST(FindRate, TheClientsLimitIsNotTheServers) {
  const FoundRate found = Find(1e9, {.start_rate = 100}, [](const RunData& run) {
    Verdict verdict = Judge(run);
    if (run.asked_rate > 900) {
      verdict.validity.push_back({.rule = "client-cpu", .passed = false, .cause = Cause::kClient});
    }
    return verdict;
  });
  EXPECT_EQ(found.exit_code, kInvalid);
  EXPECT_THAT(found.text, HasSubstr("the client was the limit"));
  EXPECT_NEAR(found.met, 900, 20);
}

TEST(FindRate, EndsWhenItsTimeIsOver) {
  const FoundRate found = Find(1234, {.start_rate = 100, .max_time = seconds(100)});
  EXPECT_EQ(found.exit_code, kMissed);
  EXPECT_GT(found.met, 0);
}

// The options do not say how many requests a percentile needs.
TEST(FindRate, TooFewRequestsMakeProbesLonger) {
  const FoundRate found = Find(1e9, {.start_rate = 10, .greatest_rate = 10});
  EXPECT_EQ(found.exit_code, kMet) << "15 s of 10/s are no p99, 60 s are";
  EXPECT_EQ(found.probes.front().duration, seconds(15));
  EXPECT_EQ(found.probes.front().result, ProbeResult::kUnclear);
  EXPECT_EQ(found.probes.front().retry_duration, seconds(30));
  EXPECT_EQ(found.probes.at(1).duration, seconds(30));
}

TEST(FindRate, AProbeIsAsLongAsItsPercentileTakes) {
  // 459 requests and three deviations more.
  const FoundRate found = Find(1e9, {.start_rate = 4, .greatest_rate = 4, .requests = 459});
  EXPECT_EQ(found.exit_code, kMet) << found.text;
  EXPECT_EQ(found.met, 4);
  ASSERT_EQ(found.probes.size(), 2U) << "the probe and its confirmation";
  EXPECT_EQ(found.probes[0].duration, seconds(131));
  EXPECT_EQ(found.probes[0].result, ProbeResult::kMet);
  const FoundRate quick = Find(1e9, {.start_rate = 400, .greatest_rate = 400, .requests = 459});
  EXPECT_EQ(quick.probes.at(0).duration, seconds(15));
}

TEST(FindRate, AnUnclearRateIsNotMissed) {
  SearchOptions options = {.start_rate = 2, .least_rate = 1, .greatest_rate = 2};
  options.confirmation = options.probe;
  const FoundRate found = Find(1e9, options);
  EXPECT_EQ(found.exit_code, kInvalid) << found.text;
  EXPECT_THAT(found.text, HasSubstr("too few requests to tell"));
  for (const Probe& probe : found.probes) EXPECT_EQ(probe.result, ProbeResult::kUnclear);

  options.requests = 459;
  options.max_time = seconds(60);
  const FoundRate short_of_time = Find(1e9, options);
  EXPECT_EQ(short_of_time.exit_code, kInvalid);
  EXPECT_THAT(short_of_time.text, HasSubstr("4:22 at 2/s would exceed --max-time"));
}

std::vector<SweepCell> Grid(const std::vector<std::string>& vary) {
  const toml::table one = ParseToml("[[class]]\nname = 'a'\nkind = 'attend'\n", "w");
  return MakeSweep(one, vary, [](const toml::table& toml) { return ParseWorkload(toml, "w"); });
}

TEST(FindRate, TheExpectedTimeIsThatOfItsRuns) {
  // A doubling, six halvings from 2 to 1.02, and the confirmation.
  const SearchOptions options = {.start_rate = 1000, .warm_up = seconds(5)};
  EXPECT_EQ(ExpectedTime(options), 7 * seconds(20) + seconds(65));
}

TEST(Sweep, CellsAreAllCombinations) {
  std::vector<std::string> all;
  for (const SweepCell& cell : Grid({"length=16,32", "rate=100,200"})) {
    const auto& attend = std::get<AttendSpec>(cell.workload.classes[0].call);
    const int64_t length = std::get<FixedLength>(attend.lengths).length;
    const double rate = std::get<OpenLoop>(cell.workload.load).rate;
    all.push_back(std::to_string(length) + "@" + std::to_string(std::lround(rate)));
    EXPECT_EQ(cell.parameters[0].second, std::to_string(length));
  }
  EXPECT_THAT(all, ::testing::ElementsAre("16@100", "16@200", "32@100", "32@200"));
}

TEST(Sweep, OnlyTheClientsFaultsSpoilACell) {
  Verdict verdict;
  verdict.validity = {{.rule = "duration", .passed = false, .cause = Cause::kTooShort}};
  EXPECT_EQ(ClientFault(verdict), "");
  verdict.validity.push_back({.rule = "client-cpu", .passed = false, .cause = Cause::kClient});
  EXPECT_THAT(ClientFault(verdict), HasSubstr("client-cpu"));
}

TEST(Sweep, ParametersAreChecked) {
  const auto cells = Grid({"kernel=clustered", "clusters=64", "heads=2"});
  ASSERT_EQ(cells.size(), 1U);
  const auto& attend = std::get<AttendSpec>(cells[0].workload.classes[0].call);
  EXPECT_EQ(attend.kernel, "clustered,clusters=64");
  EXPECT_EQ(attend.heads, 2);
  const std::vector<std::string> bad[] = {{"clusters=64"},
                                          {"rate=fast"},
                                          {"callers=3"},
                                          {"wheels=4"},
                                          {"kernel=clustered", "clusters=0"},
                                          {"length=1.5"},
                                          {"rate"},
                                          {"rate=1,,2"},
                                          {"rate=1", "rate=2"}};
  for (const auto& vary : bad) EXPECT_THROW(Grid(vary), cli::UsageError) << vary.back();
}

}  // namespace
}  // namespace castor::load
