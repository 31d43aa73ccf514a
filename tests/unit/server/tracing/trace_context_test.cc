#include "server/tracing/trace_context.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

namespace castor::server {
namespace {

constexpr char kWhole[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceparentTest, OnlyTheLastFlagSaysSampled) {
  std::string header = kWhole;
  for (const auto& [flags, sampled] :
       {std::pair{"00", false}, {"02", false}, {"fe", false}, {"03", true}, {"ff", true}}) {
    header.replace(53, 2, flags);
    const auto context = ParseTraceparent(header);
    ASSERT_TRUE(context.has_value()) << flags;
    EXPECT_EQ(context->sampled, sampled) << flags;
  }
}

TEST(TraceparentTest, LaterVersionsMayBeLonger) {
  std::string header = kWhole;
  header.replace(0, 2, "cc");
  EXPECT_TRUE(ParseTraceparent(header).has_value());
  EXPECT_TRUE(ParseTraceparent(header + "-what-the-future-will-be-like").has_value());
  EXPECT_TRUE(ParseTraceparent(header + "-").has_value());
  EXPECT_FALSE(ParseTraceparent(header + ".what").has_value());
  header.replace(0, 2, "ff");
  EXPECT_FALSE(ParseTraceparent(header).has_value()) << "there is no version ff";
}

TEST(TraceparentTest, AnythingElseIsNone) {
  const std::string whole = kWhole;
  EXPECT_FALSE(ParseTraceparent("").has_value());
  EXPECT_FALSE(ParseTraceparent(whole + "-").has_value()) << "version 0 has no more";
  EXPECT_FALSE(ParseTraceparent(whole + "0").has_value());
  EXPECT_FALSE(ParseTraceparent(" " + whole).has_value());
  EXPECT_FALSE(ParseTraceparent(whole.substr(0, 54)).has_value());
  EXPECT_FALSE(ParseTraceparent("00-" + std::string(32, '0') + "-00f067aa0ba902b7-01").has_value());
  EXPECT_FALSE(
      ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01").has_value());
  // No character can be another one: upper case, a separator, a digit, a zero byte.
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const char other : {'A', 'g', '_', ' ', '\0', '\xff'}) {
      std::string wrong = whole;
      wrong[i] = other;
      EXPECT_FALSE(ParseTraceparent(wrong).has_value()) << i << " " << int{other};
    }
  }
}

TEST(TraceStateTest, GoesOnIfItIsSmallAndPrintable) {
  EXPECT_EQ(UsableTraceState("a=1,b=2"), "a=1,b=2");
  const std::string longest(kMaxTraceStateBytes, 'x');
  EXPECT_EQ(UsableTraceState(longest), longest);
  EXPECT_EQ(UsableTraceState(longest + "x"), "");
  EXPECT_EQ(UsableTraceState("a=\xc3\xa9"), "");
  EXPECT_EQ(UsableTraceState("a=\n"), "");
  std::string members = "a=1";
  for (int i = 1; i < 32; ++i) members += ",a=1";
  EXPECT_EQ(UsableTraceState(members), members);
  EXPECT_EQ(UsableTraceState(members + ",a=1"), "");
}

TEST(IdsTest, AreDifferentOnAllThreads) {
  std::set<std::string> ids[2];
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) ids[1].insert(ToHex(NewTraceId()));
  });
  for (int i = 0; i < 1000; ++i) ids[0].insert(ToHex(NewTraceId()));
  other.join();
  ids[0].merge(ids[1]);
  EXPECT_EQ(ids[0].size(), 2000U);
  EXPECT_NE(NewSpanId(), SpanId{});
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
