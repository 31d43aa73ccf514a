#include "server/options/units.h"

#include <gtest/gtest.h>

namespace castor::server {
namespace {

using std::chrono::microseconds;

TEST(ParseBytes, TakesPlainNumbersAndBothKindsOfUnits) {
  EXPECT_EQ(ParseBytes("0"), 0);
  EXPECT_EQ(ParseBytes("17"), 17);
  EXPECT_EQ(ParseBytes("17B"), 17);
  EXPECT_EQ(ParseBytes("64MiB"), 64 << 20);
  EXPECT_EQ(ParseBytes("64Mi"), 64 << 20);
  EXPECT_EQ(ParseBytes("64m"), 64 << 20);
  EXPECT_EQ(ParseBytes("2GB"), 2'000'000'000);
  EXPECT_EQ(ParseBytes("1.5KiB"), 1536);
  EXPECT_EQ(ParseBytes("9007199254740993"), 9007199254740993);  // not exact as a double
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", "MiB", "-1", "-0.5KiB", "1 MiB", "1XB", "1MiBs", "nan", "inf",
                           "0x10", "8388608TiB", "9223372036854775808", "1e3"}) {
    EXPECT_EQ(ParseBytes(text), std::nullopt) << text;
  }
}

TEST(ParseDuration, NeedsAUnitUnlessZero) {
  EXPECT_EQ(ParseDuration("0"), microseconds(0));
  EXPECT_EQ(ParseDuration("5ms"), microseconds(5000));
  EXPECT_EQ(ParseDuration("1.5s"), microseconds(1'500'000));
  EXPECT_EQ(ParseDuration("7us"), microseconds(7));
  EXPECT_EQ(ParseDuration("2m"), microseconds(120'000'000));
  EXPECT_EQ(ParseDuration("1h"), microseconds(int64_t{3'600'000'000}));
  for (const char* text : {"", "5", "ms", "-1s", "5 ms", "5mss", "1d", "99999999999999999h"}) {
    EXPECT_EQ(ParseDuration(text), std::nullopt) << text;
  }
}

TEST(Format, ReadsBackExactly) {
  EXPECT_EQ(FormatBytes(int64_t{256} << 20), "256MiB");
  EXPECT_EQ(FormatBytes(1 << 10), "1KiB");
  EXPECT_EQ(FormatBytes(1025), "1025B");
  EXPECT_EQ(FormatDuration(std::chrono::seconds(30)), "30s");
  EXPECT_EQ(FormatDuration(std::chrono::milliseconds(1500)), "1500ms");
  for (int64_t value : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{1} << 40, INT64_MAX}) {
    EXPECT_EQ(ParseBytes(FormatBytes(value)), value);
    EXPECT_EQ(ParseDuration(FormatDuration(microseconds(value))), microseconds(value));
  }
}

}  // namespace
}  // namespace castor::server
