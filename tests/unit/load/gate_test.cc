#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "client/load/judge/compare.h"

namespace castor::load {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const std::string& text) {
  try {
    ParseGate(text);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "taken";
}

TEST(Gate, SaysWhichFigureMayNotChangeByHowMuch) {
  const Gate plain = ParseGate("p99 > +5%");
  EXPECT_EQ(plain.text, "p99 > +5%");
  EXPECT_EQ(plain.cls, "");
  EXPECT_EQ(plain.metric, "p99");
  EXPECT_DOUBLE_EQ(plain.quantile, 0.99);
  EXPECT_TRUE(plain.above);
  EXPECT_DOUBLE_EQ(plain.threshold, 0.05);

  const Gate of_class = ParseGate("  a:b : goodput<- 2.5 % ");
  EXPECT_EQ(of_class.cls, "a:b");
  EXPECT_EQ(of_class.metric, "goodput");
  EXPECT_EQ(of_class.quantile, 0);
  EXPECT_FALSE(of_class.above);
  EXPECT_DOUBLE_EQ(of_class.threshold, -0.025);

  EXPECT_EQ(ParseGate("p99.90>5%").metric, "p99.9") << "one name for each percentile";
  EXPECT_DOUBLE_EQ(ParseGate("errors > 0.1%").threshold, 0.001);
}

TEST(Gate, RefusesOtherTextAndSaysWhatIsWrong) {
  EXPECT_THAT(Refusal(""), HasSubstr("neither > nor <"));
  EXPECT_THAT(Refusal("p99 = 5%"), HasSubstr("neither > nor <"));
  EXPECT_THAT(Refusal("p99 > 5"), HasSubstr("'5' must end in %"));
  EXPECT_THAT(Refusal("p99 >= 5%"), HasSubstr("'= 5%' is no number"));
  EXPECT_THAT(Refusal("p99 > five%"), HasSubstr("'five%' is no number"));
  EXPECT_THAT(Refusal(": p99 > 5%"), HasSubstr("no class before the colon"));
  EXPECT_THAT(Refusal("latency > 5%"), HasSubstr("'latency' is none of"));
  for (const char* text : {"p > 5%", "p0 > 5%", "p100 > 5%", "p-1 > 5%", "pnan > 5%", "99 > 5%",
                           "p9x > 5%", "> 5%", "p99 > %", "p99 > +-5%", "p99 > inf%", "p99 > nan%",
                           "p99 > 1e3%", "p99 > 0x5%", "p99 > 5%%", "p99 > +5% p50"}) {
    EXPECT_THAT(Refusal(text), HasSubstr("is no condition")) << text;
    EXPECT_THAT(Refusal(text), HasSubstr(std::string("'") + text)) << text;
  }
}

}  // namespace
}  // namespace castor::load
