// Parsing of workloads, and the plans made from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "client/cli/command.h"
#include "client/load/workload/parse.h"
#include "client/load/workload/schedule.h"
#include "client/load/workload/toml_table.h"

namespace castor::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string WorkloadErrorOf(const std::string& toml) {
  try {
    (void)ParseWorkload(ParseToml(toml, "w.toml"), "w.toml");
  } catch (const cli::UsageError& error) {
    return error.what();
  }
  return "";
}

std::string Class(const std::string& more, const std::string& kind = "attend") {
  return "[[class]]\nname = \"a\"\nkind = \"" + kind + "\"\n" + more + "\n";
}

TEST(Workload, TheExampleHasTheDefaultsThatItNames) {
  const Workload workload = ParseWorkload(ParseToml(std::string(ExampleToml()), "e"), "e");
  ASSERT_EQ(workload.classes.size(), 3U);
  EXPECT_EQ(workload.duration, Workload().duration);
  EXPECT_EQ(workload.warm_up, Workload().warm_up);
  EXPECT_EQ(std::get<OpenLoop>(workload.load).rate, OpenLoop().rate);
  const ClassSpec& first = workload.classes[0];
  EXPECT_EQ(first.deadline, ClassSpec().deadline);
  EXPECT_EQ(first.payloads, ClassSpec().payloads);
  const auto& attend = std::get<AttendSpec>(first.call);
  EXPECT_EQ(attend.heads, AttendSpec().heads);
  EXPECT_EQ(attend.head_dim, AttendSpec().head_dim);
  EXPECT_EQ(first.objective.latencies.at(0).limit, milliseconds(50));
  const auto& kernel = std::get<AttendSpec>(workload.classes[1].call).kernel;
  EXPECT_EQ(kernel, "improved-clustered,clusters=100,topk=32");
  EXPECT_EQ(workload.classes[2].priority, v1::HIGH);
}

TEST(Workload, KernelsAreCheckedAsOnTheCommandLine) {
  EXPECT_THAT(WorkloadErrorOf(Class("kernel = \"clustered,clusters=0\"")),
              AllOf(HasSubstr("class 'a'"), HasSubstr("clusters: '0'"), HasSubstr("line 4")));
  EXPECT_THAT(WorkloadErrorOf(Class("kernel = \"clustered,spokes=3\"")), HasSubstr("spokes"));
}

TEST(Workload, ErrorsSayWhereAndWhat) {
  EXPECT_THAT(WorkloadErrorOf(Class("weight = -3")),
              AllOf(HasSubstr("w.toml, line 4"), HasSubstr("class 'a': weight"), HasSubstr("-3")));
  EXPECT_THAT(WorkloadErrorOf(Class("wieght = 3")),
              HasSubstr("no key 'wieght'; it may have name, weight"));
  EXPECT_THAT(WorkloadErrorOf("[load]\narrivals = \"bursts\"\n" + Class("")), HasSubstr("poisson"));
  EXPECT_THAT(WorkloadErrorOf("[run]\nduration = 5\n" + Class("")), HasSubstr("a duration"));
  EXPECT_THAT(WorkloadErrorOf(Class("") + Class("")), HasSubstr("another class has this name"));
  EXPECT_THAT(WorkloadErrorOf("[load]\nrate = 5\n"), HasSubstr("[[class]]"));
  EXPECT_THAT(WorkloadErrorOf(Class("kind = \"other\"")), HasSubstr("w.toml"));
  EXPECT_THAT(WorkloadErrorOf(Class("lengths = {uniform = [5, 2]}")), HasSubstr("uniform"));
  EXPECT_THAT(WorkloadErrorOf(Class("cancel-share = 0.5\ncancel-after = \"2m\"")),
              HasSubstr("below the deadline"));
  EXPECT_THAT(WorkloadErrorOf(Class("token = \"secret\"")), HasSubstr("token-file"));
  EXPECT_THAT(WorkloadErrorOf(Class("objectives = [\"p99 < 5ms\"]")), HasSubstr("p99 <= 50ms"));
  EXPECT_THAT(WorkloadErrorOf("x = [1"), HasSubstr("w.toml, line 1"));
  EXPECT_EQ(WorkloadErrorOf(Class("heads = 2\nlengths = {lognormal = {median = 64}}")), "");
}

TEST(Units, AreReadAsTheyAreWritten) {
  EXPECT_EQ(ParseDuration("1.5s"), milliseconds(1500));
  EXPECT_EQ(ParseDuration("250us"), nanoseconds(250'000));
  for (const char* bad : {"", "5", "-5ms", "5 ms", "ms", "1e3s", "91days", "3000h"}) {
    EXPECT_FALSE(ParseDuration(bad).has_value()) << bad;
  }
  EXPECT_EQ(FormatDuration(seconds(90)), "90s");
  EXPECT_EQ(FormatDuration(milliseconds(50)), "50ms");
  EXPECT_EQ(ParsePercent("0.1%"), 0.001);
  EXPECT_FALSE(ParsePercent("101%").has_value());
  EXPECT_EQ(QuantileName(0.999), "p99.9");
  EXPECT_EQ(QuantileName(0.5), "p50");
}

TEST(Units, AGoalIsAddedOnce) {
  Objective objective;
  AddGoal("p99.9 <= 80ms", &objective);
  AddGoal("errors <= 1%", &objective);
  EXPECT_EQ(objective.latencies.at(0).quantile, 0.999);
  EXPECT_EQ(objective.max_error_share, 0.01);
  for (const char* bad : {"p99.9 <= 1s", "errors <= 2%", "p100 <= 1s", "mean <= 1s", "p50 <= 0s"}) {
    EXPECT_THROW(AddGoal(bad, &objective), std::invalid_argument) << bad;
  }
}

Workload TwoClasses(const OpenLoop& load) {
  Workload workload;
  workload.load = load;
  workload.duration = seconds(50);
  workload.warm_up = seconds(5);
  workload.classes = {{.name = "a", .weight = 3}, {.name = "b", .weight = 1}};
  workload.classes[1].cancel_share = 0.25;
  workload.classes[1].cancel_after = milliseconds(7);
  workload.classes[1].payloads = 3;
  return workload;
}

TEST(Schedule, HasTheRateTheWeightsAndTheShares) {
  const auto schedule = MakeSchedule(TwoClasses({.rate = 1000}), 0.1);
  double second_class = 0, cancelled = 0, verified = 0, gaps = 0, squares = 0;
  for (size_t i = 0; i < schedule.size(); ++i) {
    const Planned& planned = schedule[i];
    second_class += planned.cls;
    cancelled += planned.cancel_after_ns == 7'000'000 ? 1 : 0;
    verified += planned.verify ? 1 : 0;
    ASSERT_LT(planned.payload, planned.cls == 0 ? 16U : 3U);
    if (i == 0) continue;
    const double gap = static_cast<double>(planned.at_ns - schedule[i - 1].at_ns) * 1e-9;
    ASSERT_GE(gap, 0);
    gaps += gap;
    squares += gap * gap;
  }
  const auto count = static_cast<double>(schedule.size());
  EXPECT_NEAR(count, 55'000, 5 * std::sqrt(55'000));
  EXPECT_NEAR(second_class / count, 0.25, 0.01);
  EXPECT_NEAR(cancelled / second_class, 0.25, 0.02);
  EXPECT_NEAR(verified / count, 0.1, 0.01);
  // For exponential gaps, the mean square is twice the squared mean.
  const double mean = gaps / (count - 1);
  EXPECT_NEAR(squares / (count - 1) / (mean * mean), 2, 0.1);
  EXPECT_GE(schedule.front().at_ns, -5'000'000'000);
  EXPECT_LT(schedule.back().at_ns, 50'000'000'000);
}

TEST(Schedule, IsFixedByTheSeed) {
  Workload workload = TwoClasses({.rate = 100});
  const auto times = [&] {
    std::vector<int64_t> all;
    for (const Planned& planned : MakeSchedule(workload, 0)) all.push_back(planned.at_ns);
    return all;
  };
  const auto first = times();
  EXPECT_EQ(times(), first);
  workload.seed = 2;
  EXPECT_NE(times(), first);
  EXPECT_EQ(first.size(), MakeSchedule(TwoClasses({.rate = 100}), 0.5).size())
      << "verification leaves the plan as it was";
}

TEST(Schedule, ConstantArrivalsDoNotDrift) {
  Workload workload = TwoClasses({.rate = 3, .constant = true});
  workload.duration = std::chrono::hours(3);
  const auto schedule = MakeSchedule(workload, 0);
  EXPECT_EQ(schedule.front().at_ns, -5'000'000'000);
  EXPECT_EQ(schedule[15 + 3 * 10'000].at_ns, 10'000'000'000'000);
}

TEST(Schedule, RefusesWhatDoesNotFitMemory) {
  Workload workload = TwoClasses({.rate = 1e7});
  workload.duration = std::chrono::hours(24);
  EXPECT_THROW(MakeSchedule(workload, 0), std::runtime_error);
}

TEST(Lengths, AreDrawnFromTheirDistribution) {
  Random random(1);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const int64_t uniform = Draw(UniformLength{3, 9}, random);
    ASSERT_TRUE(uniform >= 3 && uniform <= 9);
    const int64_t lognormal = Draw(LognormalLength{100, 0.5, 20, 400}, random);
    ASSERT_TRUE(lognormal >= 20 && lognormal <= 400);
    sum += lognormal <= 100 ? 1 : 0;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.03) << "half are below the median";
  EXPECT_EQ(Draw(FixedLength{7}, random), 7);
}

}  // namespace
}  // namespace castor::load
