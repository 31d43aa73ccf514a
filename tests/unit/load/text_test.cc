#include "client/load/output/text.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "client/cli/values.h"
#include "client/load/workload/objective.h"
#include "tests/support/seeded.h"

namespace castor::load {
namespace {

TEST(TextTest, DurationsHaveThreeDigitsAndRoundIntoTheNextUnit) {
  EXPECT_EQ(TimeText(0), "0");
  EXPECT_EQ(TimeText(512), "<1 us");
  EXPECT_EQ(TimeText(1000), "1.00 us");
  EXPECT_EQ(TimeText(1234), "1.23 us");
  EXPECT_EQ(TimeText(840'000), "840 us");
  EXPECT_EQ(TimeText(999'600), "1.00 ms");
  EXPECT_EQ(TimeText(9'996'000), "10.0 ms");
  EXPECT_EQ(TimeText(12'440'000), "12.4 ms");
  EXPECT_EQ(TimeText(999'600'000), "1.00 s");
  EXPECT_EQ(TimeText(125e9), "125 s");
  EXPECT_EQ(TimeSign(840'000), "840 µs");
  EXPECT_EQ(TimeSign(12'440'000), "12.4 ms");
  EXPECT_EQ(RoundTime(50e6), "50 ms");
  EXPECT_EQ(RoundTime(2.5e9), "2.5 s");
  EXPECT_EQ(RoundTime(5e5), "500 µs");
  EXPECT_EQ(SecondsText(60), "60 s");
  EXPECT_EQ(SecondsText(3600), "3,600 s");
}

TEST(TextTest, NumbersReadAsPeopleWriteThem) {
  EXPECT_EQ(CountText(0), "0");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(1000), "1,000");
  EXPECT_EQ(CountText(1'234'567), "1,234,567");
  EXPECT_EQ(CountText(-1'000), "-1,000");
  EXPECT_EQ(RateText(0), "0");
  EXPECT_EQ(RateText(0.5), "0.5");
  EXPECT_EQ(RateText(12.34), "12.3");
  EXPECT_EQ(RateText(4980.2), "4,980");
  EXPECT_EQ(ClockText(78.9), "1:18");
  EXPECT_EQ(ClockText(3723), "1:02:03");
  EXPECT_EQ(ClockText(-3), "0:00");
  EXPECT_EQ(QuantileName(0.5), "p50");
  EXPECT_EQ(QuantileName(0.999), "p99.9");
  EXPECT_EQ(GoalText({0.99, std::chrono::milliseconds(50)}), "p99 <= 50 ms");
  EXPECT_EQ(GoalSign({0.99, std::chrono::microseconds(50)}), "p99 ≤ 50 µs");
}

TEST(TextTest, AShareBelowAllNeverReadsAll) {
  EXPECT_EQ(PercentText(0, 0), "-");
  EXPECT_EQ(PercentText(0, 9), "0%");
  EXPECT_EQ(PercentText(9, 9), "100%");
  EXPECT_EQ(PercentText(1, 8), "12.5%");
  EXPECT_EQ(PercentText(99'999, 100'000), "99.999%");
  EXPECT_EQ(PercentText(1, 100'000), "0.001%");
  EXPECT_EQ(PercentText(1, 1e9), "<0.0001%");
  EXPECT_EQ(PercentText(1e12 - 1, 1e12), "99.99999%");
  EXPECT_EQ(PercentText(3, 2), "150.0%");
}

TEST(TextTest, CleanTextReplacesWhatIsNoTextAndKeepsTheRest) {
  EXPECT_EQ(CleanText("Grüße, 世界\n\t"), "Grüße, 世界\n\t");
  EXPECT_EQ(CleanText("a\xff"
                      "b"),
            "a\xef\xbf\xbd"
            "b");
  EXPECT_EQ(CleanText("\xe4\xb8"), "\xef\xbf\xbd\xef\xbf\xbd");  // a character cut in two
  EXPECT_EQ(CleanText("\x1b[31m"), "\xef\xbf\xbd[31m");
  EXPECT_EQ(CleanText("\u202e"), "\xef\xbf\xbd");  // turns what follows around
  EXPECT_EQ(CleanText(std::string("\0", 1)), "\xef\xbf\xbd");
}

TEST(TextTest, FitTextCutsByCellsNotByBytes) {
  EXPECT_EQ(FitText("short", 10), "short");
  EXPECT_EQ(FitText("exactly", 7), "exactly");
  EXPECT_EQ(FitText("too long", 4), "too…");
  EXPECT_EQ(FitText("世界世界", 8), "世界世界");
  EXPECT_EQ(FitText("世界世界", 7), "世界世…");
  EXPECT_EQ(FitText("two\nlines", 20), "two lines");
  EXPECT_EQ(FitText("anything", 0), "");
}

class RandomTextTest : public Seeded, public ::testing::Test {};

TEST_F(RandomTextTest, IsCleanAndFitsWhateverItIsMadeOf) {
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int64_t i = Uniform(0, 40); i > 0; --i) {
      // Half of the bytes are those that build characters of several bytes.
      text += static_cast<char>(Uniform(0, 1) == 0 ? Uniform(0, 255) : Uniform(0x80, 0xf4));
    }
    const std::string clean = CleanText(text);
    EXPECT_EQ(cli::FindInvalidUtf8(clean), std::nullopt);
    EXPECT_EQ(CleanText(clean), clean);
    const auto cells = static_cast<size_t>(Uniform(0, 30));
    EXPECT_LE(CellsOf(FitText(text, cells)), cells);
  }
}

}  // namespace
}  // namespace castor::load
