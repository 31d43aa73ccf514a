#include "client/load/workload/units.h"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>

#include "client/load/workload/objective.h"
#include "tests/unit/load/seeds.h"

namespace castor::load {
namespace {

using std::chrono::nanoseconds;

TEST(Units, DurationsAreRead) {
  const std::pair<const char*, int64_t> cases[] = {
      {"50ms", 50'000'000}, {"1.5s", 1'500'000'000}, {"0s", 0},      {"3us", 3000},
      {"7ns", 7},           {"2m", 120'000'000'000}, {"0.1us", 100}, {"1h", 3'600'000'000'000}};
  for (const auto& [text, ns] : cases) EXPECT_EQ(ParseDuration(text), nanoseconds(ns)) << text;
  for (const char* text : {"", "s", "50", "50 ms", "-1s", "1e3s", "1.2.3s", "+1s", "nan", "infs",
                           ".s", "1d", "1S", "2161h", "99999999999999999999s"}) {
    EXPECT_EQ(ParseDuration(text), std::nullopt) << text;
  }
}

TEST(Units, DurationsComeBack) {
  std::mt19937_64 random(FreshSeed());
  for (int i = 0; i < 10'000; ++i) {
    // Of every magnitude, round and not.
    int64_t ns = static_cast<int64_t>(random() >> (12 + random() % 50));
    if (i % 2 == 0) ns = ns / 1'000'000 * 1'000'000;
    ASSERT_EQ(ParseDuration(FormatDuration(nanoseconds(ns))), nanoseconds(ns)) << ns;
  }
  EXPECT_EQ(FormatDuration(std::chrono::milliseconds(50)), "50ms");
  EXPECT_EQ(FormatDuration(std::chrono::seconds(90)), "90s");
  EXPECT_EQ(FormatDuration(std::chrono::seconds(120)), "2m");
}

TEST(Units, PercentsComeBack) {
  std::mt19937_64 random(FreshSeed());
  for (int i = 0; i < 10'000; ++i) {
    const double share = std::uniform_real_distribution<double>(0, i % 2 == 0 ? 1 : 1e-5)(random);
    ASSERT_EQ(ParsePercent(FormatPercent(share) + "%"), share);
  }
  EXPECT_EQ(FormatPercent(0.999), "99.9");
  EXPECT_EQ(FormatPercent(0.001), "0.1");
  EXPECT_EQ(FormatPercent(1), "100");
  EXPECT_EQ(FormatPercent(0), "0");
  EXPECT_EQ(ParsePercent("99.9%"), 0.999);
  for (const char* text : {"", "%", "1", "-1%", "101%", "1e1%", "nan%", "1 %"}) {
    EXPECT_EQ(ParsePercent(text), std::nullopt) << text;
  }
}

TEST(Objective, GoalsAreRead) {
  Objective objective;
  AddGoal("p99 <= 50ms", &objective);
  AddGoal("p99.9<=1.5s", &objective);
  AddGoal(" errors <= 0.1% ", &objective);
  ASSERT_EQ(objective.latencies.size(), 2U);
  EXPECT_EQ(objective.latencies[0].quantile, 0.99);
  EXPECT_EQ(objective.latencies[0].limit, std::chrono::milliseconds(50));
  EXPECT_EQ(objective.latencies[1].quantile, 0.999);
  EXPECT_EQ(objective.latencies[1].limit, std::chrono::milliseconds(1500));
  EXPECT_EQ(objective.max_error_share, 0.001);
  EXPECT_EQ(GoalsOf(objective),
            (std::vector<std::string>{"p99 <= 50ms", "p99.9 <= 1500ms", "errors <= 0.1%"}));
}

TEST(Objective, OthersAreRefusedWithAnExample) {
  const std::pair<const char*, const char*> cases[] = {
      {"p99 < 50ms", "is no objective"},
      {"fast", "is no objective"},
      {"q99 <= 50ms", "is neither of a percentile nor of errors"},
      {"p100 <= 50ms", "needs a percentile above p0 and below p100"},
      {"p0 <= 50ms", "needs a percentile"},
      {"p <= 50ms", "needs a percentile"},
      {"p99 <= 50", "needs a duration"},
      {"p99 <= 0s", "needs a duration"},
      {"errors <= 5ms", "needs a share"},
      {"errors <= 101%", "needs a share"},
      {"p50 <= 1s", "is a second objective for the same percentile"},
      {"errors <= 2%", "is a second objective for errors"}};
  for (const auto& [text, why] : cases) {
    Objective objective;
    const std::string reason = why;
    if (reason.find("second") != std::string::npos) {
      AddGoal("p50 <= 2s", &objective);
      AddGoal("errors <= 1%", &objective);
    }
    try {
      AddGoal(text, &objective);
      ADD_FAILURE() << text;
    } catch (const std::invalid_argument& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(reason), std::string::npos) << message;
      EXPECT_NE(message.find("write it as"), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace castor::load
