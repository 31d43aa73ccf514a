#include "client/load/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "tests/unit/load/seeds.h"

namespace castor::load {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Three classes of weights 6, 3 and 1; a fifth of the second's requests is cancelled.
Workload Three(uint64_t seed) {
  Workload workload;
  workload.classes.resize(3);
  workload.classes[0].weight = 6;
  workload.classes[0].payloads = 3;
  workload.classes[1].weight = 3;
  workload.classes[1].payloads = 1;
  workload.classes[1].cancel_share = 0.2;
  workload.classes[1].cancel_after = milliseconds(7);
  workload.classes[2].weight = 1;
  workload.classes[2].payloads = 5;
  workload.load = OpenLoop{.rate = FlatRate{1000}};
  workload.duration = seconds(50);
  workload.warm_up = seconds(5);
  workload.seed = seed;
  return workload;
}

bool Equal(const Planned& a, const Planned& b) {
  return a.at_ns == b.at_ns && a.cancel_after_ns == b.cancel_after_ns && a.payload == b.payload &&
         a.cls == b.cls && a.verify == b.verify;
}

// FNV-1a of everything that a schedule says.
uint64_t Hash(const Schedule& schedule) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](uint64_t value) {
    for (int byte = 0; byte < 8; ++byte, value >>= 8) hash = (hash ^ (value & 255)) * 0x100000001b3;
  };
  for (const Planned& planned : schedule) {
    add(static_cast<uint64_t>(planned.at_ns));
    add(static_cast<uint64_t>(planned.cancel_after_ns));
    add(planned.payload);
    add(planned.cls);
    add(planned.verify);
  }
  return hash;
}

double StandardDeviations(double count, double of, double share) {
  return std::abs(count - of * share) / std::sqrt(of * share * (1 - share));
}

TEST(Schedule, HasClassesByWeightAndChoicesByShare) {
  const Schedule schedule = MakeSchedule(Three(FreshSeed()), 0.1);
  const auto total = static_cast<double>(schedule.size());
  EXPECT_NEAR(total, 55'000, 6 * std::sqrt(55'000));
  std::map<int, double> counts;
  double cancelled = 0, verified = 0;
  std::map<int, uint32_t> next;
  for (const Planned& planned : schedule) {
    ++counts[planned.cls];
    verified += planned.verify;
    if (planned.cancel_after_ns >= 0) {
      EXPECT_EQ(planned.cls, 1);
      EXPECT_EQ(planned.cancel_after_ns, 7'000'000);
      ++cancelled;
    }
    // Payloads come in turn.
    ASSERT_EQ(planned.payload, next[planned.cls]);
    const uint32_t payloads[] = {3, 1, 5};
    next[planned.cls] = (planned.payload + 1) % payloads[planned.cls];
  }
  EXPECT_LT(StandardDeviations(counts[0], total, 0.6), 6);
  EXPECT_LT(StandardDeviations(counts[1], total, 0.3), 6);
  EXPECT_LT(StandardDeviations(counts[2], total, 0.1), 6);
  EXPECT_LT(StandardDeviations(cancelled, counts[1], 0.2), 6);
  EXPECT_LT(StandardDeviations(verified, total, 0.1), 6);
}

TEST(Schedule, IsInOrderAndBeginsWithTheWarmUp) {
  for (const Rate& rate : std::vector<Rate>{FlatRate{900}, SineRate{900, 900, seconds(3)},
                                            BurstRate{0, 3000, seconds(1), seconds(4)}}) {
    Workload workload = Three(FreshSeed());
    workload.load = OpenLoop{.rate = rate};
    const Schedule schedule = MakeSchedule(workload, 0);
    EXPECT_TRUE(std::is_sorted(schedule.begin(), schedule.end(),
                               [](const auto& a, const auto& b) { return a.at_ns < b.at_ns; }));
    EXPECT_GE(schedule.front().at_ns, -5'000'000'000);
    EXPECT_LT(schedule.front().at_ns, -4'900'000'000);
    EXPECT_GT(schedule.back().at_ns, 40'000'000'000);
    EXPECT_LT(schedule.back().at_ns, 50'000'000'000);
  }
}

TEST(Schedule, IsAFunctionOfTheSeed) {
  const uint64_t seed = FreshSeed();
  EXPECT_EQ(Hash(MakeSchedule(Three(seed), 0.5)), Hash(MakeSchedule(Three(seed), 0.5)));
  EXPECT_NE(Hash(MakeSchedule(Three(seed), 0.5)), Hash(MakeSchedule(Three(seed + 1), 0.5)));
}

// On every machine the same; a change of this number changes everybody's plans.
TEST(Schedule, IsKnown) {
  Workload workload = Three(1);
  uint64_t hash = 0;
  for (const Rate& rate : std::vector<Rate>{FlatRate{1000}, RampRate{10, 900},
                                            StepRate{{100, 0, 700}}, SineRate{500, 500, seconds(7)},
                                            BurstRate{50, 2000, milliseconds(300), seconds(2)}}) {
    for (const Process process : {Process::kConstant, Process::kPoisson, Process::kGamma}) {
      workload.load = OpenLoop{.process = process, .burstiness = 1.7, .rate = rate};
      hash = hash * 31 + Hash(MakeSchedule(workload, 0.01));
    }
  }
  EXPECT_EQ(hash, 17313715339434286788U);
}

TEST(Schedule, AnotherShareOfVerificationChangesNothingElse) {
  const uint64_t seed = FreshSeed();
  Schedule none = MakeSchedule(Three(seed), 0), all = MakeSchedule(Three(seed), 1);
  ASSERT_EQ(none.size(), all.size());
  for (size_t i = 0; i < none.size(); ++i) {
    ASSERT_FALSE(none[i].verify);
    ASSERT_TRUE(all[i].verify);
    all[i].verify = false;
    ASSERT_TRUE(Equal(none[i], all[i]));
  }
}

TEST(Schedule, RefusesWhatDoesNotFit) {
  Workload workload = Three(1);
  workload.load = OpenLoop{.rate = FlatRate{1e7}};
  try {
    MakeSchedule(workload, 0);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("550000000 requests"), std::string::npos)
        << error.what();
  }
  workload.load = ClosedLoop{};
  EXPECT_THROW(MakeSchedule(workload, 0), std::runtime_error);
}

TEST(EndlessSchedule, HasClassesByWeightInEveryStream) {
  const Workload workload = Three(FreshSeed());
  for (const uint64_t stream : {0, 1, 2}) {
    EndlessSchedule endless(workload, 0.1, stream);
    std::map<int, double> counts;
    for (int i = 0; i < 50'000; ++i) {
      const Planned planned = endless.Next();
      EXPECT_EQ(planned.at_ns, 0);
      ++counts[planned.cls];
    }
    EXPECT_LT(StandardDeviations(counts[0], 50'000, 0.6), 6);
    EXPECT_LT(StandardDeviations(counts[2], 50'000, 0.1), 6);
  }
}

TEST(EndlessSchedule, StreamsDifferAndRepeat) {
  const Workload workload = Three(FreshSeed());
  EndlessSchedule one(workload, 0.1, 1), again(workload, 0.1, 1), two(workload, 0.1, 2);
  int different = 0;
  for (int i = 0; i < 1000; ++i) {
    const Planned planned = one.Next();
    ASSERT_TRUE(Equal(planned, again.Next()));
    different += planned.cls != two.Next().cls;
  }
  EXPECT_GT(different, 300);
}

}  // namespace
}  // namespace castor::load
