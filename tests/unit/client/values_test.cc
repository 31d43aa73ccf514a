#include "client/cli/values.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace castor::cli {
namespace {

// The text that CLI11 continues with, or "refused".
std::string Taken(const CLI::Validator& validator, std::string text) {
  return validator(text).empty() ? text : "refused";
}

TEST(Values, WholeNumbersAreDecimalAndInRange) {
  const CLI::Validator number = Number(-5, 100);
  for (const char* text : {"-5", "0", "7", "100"}) EXPECT_EQ(Taken(number, text), text);
  EXPECT_EQ(Taken(number, "010"), "10") << "not octal";
  EXPECT_EQ(Taken(number, "+7"), "7");
  for (const char* text : {"", " ", "-6", "101", "0x10", "7.0", "7e0", "7x", " 7", "7 ", "nan",
                           "inf", "--7", "+-7", "+", "-", "99999999999999999999"}) {
    EXPECT_EQ(Taken(number, text), "refused") << text;
  }
  const CLI::Validator seed = Number(uint64_t{0}, UINT64_MAX);
  EXPECT_EQ(Taken(seed, "18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(Taken(seed, "18446744073709551616"), "refused");
  EXPECT_EQ(Taken(seed, "-1"), "refused");
}

TEST(Values, RealNumbersAreFinite) {
  constexpr double kGreatest = std::numeric_limits<double>::max();
  const CLI::Validator any = Number(-kGreatest, kGreatest);
  for (const char* text : {"0", "-0.5", "1e300", "1e-300", ".5", "3."}) {
    EXPECT_EQ(Taken(any, text), text);
  }
  for (const char* text : {"nan", "-nan", "NAN", "nan(1)", "inf", "-inf", "infinity", "1e999",
                           "-1e999", "0x1p3", "", " ", "1,5", "1.5x", "e5"}) {
    EXPECT_EQ(Taken(any, text), "refused") << text;
  }
  const CLI::Validator part = Number(0.0, 1.0);
  EXPECT_EQ(Taken(part, "1"), "1");
  EXPECT_EQ(Taken(part, "1.0000001"), "refused");
  EXPECT_EQ(Taken(part, "nan"), "refused");
}

TEST(Values, Utf8IsWhatTheStandardSays) {
  for (const std::string& text :
       {std::string("plain"), std::string("\0nul", 4), std::string("\xc2\x80 \xdf\xbf"),
        std::string("\xe0\xa0\x80 \xed\x9f\xbf \xee\x80\x80 \xef\xbf\xbf"),
        std::string("\xf0\x90\x80\x80 \xf4\x8f\xbf\xbf")}) {
    EXPECT_EQ(FindInvalidUtf8(text), std::nullopt) << text;
  }
  for (const char* tail :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2x", "\xe0\x80\x80", "\xe0\x9f\xbf",
        "\xed\xa0\x80", "\xed\xbf\xbf", "\xe2\x82", "\xe2\x82x", "\xf0\x80\x80\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf0\x9f\x98", "\xff"}) {
    EXPECT_EQ(FindInvalidUtf8("ab" + std::string(tail)), 2u) << ::testing::PrintToString(tail);
  }
  EXPECT_EQ(Taken(Utf8(), ""), "");
  EXPECT_EQ(Taken(Name(), ""), "refused");
  EXPECT_EQ(Taken(Name(), "a\xff"), "refused");
  EXPECT_EQ(Taken(FileName(), "a\xff"), "a\xff") << "file systems know no encodings";
  EXPECT_EQ(Taken(FileName(), ""), "refused");
}

}  // namespace
}  // namespace castor::cli
