#include "server/tracing/ids.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <thread>

namespace castor::server {
namespace {

TEST(IdsTest, AreDifferentOnAllThreads) {
  std::set<std::string> ids[2];
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) ids[1].insert(ToHex(NewTraceId()));
  });
  for (int i = 0; i < 1000; ++i) ids[0].insert(ToHex(NewTraceId()));
  other.join();
  ids[0].merge(ids[1]);
  EXPECT_EQ(ids[0].size(), 2000U);
  EXPECT_FALSE(IsZero(NewSpanId()));
}

TEST(IdsTest, ABatchIsTheSameForAllItsRequests) {
  EXPECT_EQ(BatchContext(1, 7), BatchContext(1, 7));
  std::set<std::string> traces;
  for (uint64_t batch = 0; batch < 1000; ++batch) {
    traces.insert(ToHex(BatchContext(1, batch).trace));
    traces.insert(ToHex(BatchContext(2, batch).trace));
  }
  EXPECT_EQ(traces.size(), 2000U) << "neither of another batch nor of another process";
}

TEST(SamplerTest, TheCallersDecisionHolds) {
  const TraceContext yes{.trace = NewTraceId(), .span = NewSpanId(), .sampled = true};
  TraceContext no = yes;
  no.sampled = false;
  const Sampler few(1e-9);
  const Sampler all(1);
  EXPECT_TRUE(few.Takes(yes, yes.trace));
  EXPECT_FALSE(all.Takes(no, no.trace));
  EXPECT_FALSE(Sampler(0).Takes(yes, yes.trace)) << "off is off";
}

TEST(SamplerTest, TakesItsShareOfTheOthers) {
  for (const double share : {0.0, 0.01, 0.5, 1.0}) {
    const Sampler sampler(share);
    int taken = 0;
    constexpr int kTraces = 100'000;
    for (int i = 0; i < kTraces; ++i) taken += sampler.Takes(std::nullopt, NewTraceId()) ? 1 : 0;
    // Five standard deviations.
    EXPECT_NEAR(taken, share * kTraces, 5 * std::sqrt(share * (1 - share) * kTraces)) << share;
  }
}

TEST(SamplerTest, TheTraceIdAloneDecides) {
  TraceId id{};
  const Sampler half(0.5);
  id[0] = 0xff;
  id[8] = 0xff;  // the last 56 bits begin after it
  EXPECT_FALSE(half.Takes(std::nullopt, id));
  id[9] = 0x7f;
  EXPECT_FALSE(half.Takes(std::nullopt, id));
  id[9] = 0x80;
  EXPECT_TRUE(half.Takes(std::nullopt, id));
  EXPECT_TRUE(Sampler(0.6).Takes(std::nullopt, id)) << "what a smaller share takes, a larger does";
}

}  // namespace
}  // namespace castor::server
