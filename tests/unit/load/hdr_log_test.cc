#include "client/load/measure/hdr_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <bit>
#include <chrono>
#include <cstdint>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "tests/support/seeded.h"
#include "tests/unit/load/made_run.h"

namespace castor::load {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A histogram as other programs' readers see it, decoded by the format's description alone: counts
// by the lowest value of their bucket.
struct Decoded {
  std::map<int64_t, int64_t> counts = {};
  int64_t digits = 0, lowest = 0, highest = 0;
  double ratio = 0;
};

uint64_t BigEndian(const std::string& bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value = value << 8 | static_cast<uint8_t>(bytes.at(at + i));
  return value;
}

// The lowest value at an index of the array of counts, by walking it.
int64_t ValueAtIndex(int64_t index) {
  int64_t value = 0, width = 512;
  for (int64_t i = 0; i < index; ++i) {
    if (i == 2048 || (i > 2048 && i % 1024 == 0)) width *= 2;
    value += width;
  }
  return value;
}

Decoded Decode(const std::string& base64) {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(base64, &bytes));
  EXPECT_EQ(BigEndian(bytes, 0, 4), 0x1c849314u);
  EXPECT_EQ(BigEndian(bytes, 4, 4), bytes.size() - 8);
  std::string plain(1 << 20, '\0');
  uLongf size = plain.size();
  EXPECT_EQ(uncompress(reinterpret_cast<Bytef*>(plain.data()), &size,
                       reinterpret_cast<const Bytef*>(bytes.data() + 8), bytes.size() - 8),
            Z_OK);
  plain.resize(size);
  EXPECT_EQ(BigEndian(plain, 0, 4), 0x1c849313u);
  EXPECT_EQ(BigEndian(plain, 4, 4), plain.size() - 40);
  EXPECT_EQ(BigEndian(plain, 8, 4), 0u);
  Decoded decoded = {.digits = static_cast<int64_t>(BigEndian(plain, 12, 4)),
                     .lowest = static_cast<int64_t>(BigEndian(plain, 16, 8)),
                     .highest = static_cast<int64_t>(BigEndian(plain, 24, 8)),
                     .ratio = std::bit_cast<double>(BigEndian(plain, 32, 8))};
  int64_t index = 0;
  for (size_t at = 40; at < plain.size();) {
    uint64_t zigzag = 0;
    for (int byte = 0;; ++byte) {
      const auto next = static_cast<uint8_t>(plain.at(at++));
      const bool last = byte == 8 || next < 0x80;
      zigzag |= static_cast<uint64_t>(byte == 8 ? next : next & 0x7f) << (7 * byte);
      if (last) break;
    }
    const auto number = static_cast<int64_t>(zigzag >> 1) ^ -static_cast<int64_t>(zigzag & 1);
    if (number > 0) decoded.counts[ValueAtIndex(index)] = number;
    index += number < 0 ? -number : 1;
  }
  return decoded;
}

std::map<int64_t, int64_t> CountsOf(const Histogram& histogram) {
  std::map<int64_t, int64_t> counts;
  histogram.ForEach([&](int64_t low, int64_t, int64_t count) { counts[low] = count; });
  return counts;
}

// The public Python library's encoding (hdrhistogram 0.10.8) of the values below.
constexpr char kGolden[] =
    "HISTFAAAADd4nJNpmSzMwMAgygABzFDqBRC7GexYwGD/ASLCtl+ObTcjU6vwBX5GpulvGW+wvI9kAgAUBQwW";
const std::pair<int64_t, int64_t> kGoldenValues[] = {{0, 2},
                                                     {511, 1},
                                                     {1'000'000, 3},
                                                     {1'048'576, 1},
                                                     {2'500'000, 1000},
                                                     {2'504'000, 1},
                                                     {70'000'000'000, 300},
                                                     {3'600'000'000'000, 1}};

TEST(HdrLog, EncodesWhatThePythonLibraryEncodes) {
  Histogram histogram;
  for (const auto& [value, count] : kGoldenValues) histogram.Record(value, count);
  const Decoded golden = Decode(kGolden), own = Decode(EncodeHistogram(histogram));
  EXPECT_EQ(golden.counts, CountsOf(histogram));
  EXPECT_EQ(own.counts, golden.counts);
  EXPECT_EQ(own.digits, golden.digits);
  EXPECT_EQ(own.lowest, golden.lowest);
  EXPECT_EQ(own.highest, golden.highest);
  EXPECT_EQ(own.ratio, golden.ratio);
}

TEST(HdrLog, EncodesEveryCountOfAnyHistogram) {
  const uint32_t seed = FreshSeed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 30; ++i) {
    Histogram histogram;
    for (int k = 0; k < i * i; ++k) {
      // Neighbours without and with one and two empty buckets between them, and counts of all
      // sizes.
      const int64_t value = int64_t{1} << (random() % 42);
      histogram.Record(value + static_cast<int64_t>(random() % 4) * 512);
      histogram.Record(value, int64_t{1} << (random() % 50));
    }
    EXPECT_EQ(Decode(EncodeHistogram(histogram)).counts, CountsOf(histogram));
  }
  EXPECT_TRUE(Decode(EncodeHistogram(Histogram())).counts.empty());
}

TEST(HdrLog, HasALineForEachSecondAndClass) {
  RunData run = EmptyRun(2);
  run.classes = {"short", "long, with\ta comma"};
  run.objectives.resize(2);
  run.cells.resize(2, std::vector<Cell>(1));
  for (auto& second : run.seconds) second.resize(2);
  run.clients[0].seconds = 1.25;  // so the second interval is a quarter
  Count({.second = 0, .latency = std::chrono::microseconds(2769)}, run);
  Count({.second = 1, .latency = std::chrono::seconds(70), .cls = 1}, run);
  std::ostringstream out;
  WriteHdrLog(run, out);

  const std::vector<std::string> lines = absl::StrSplit(out.str(), '\n');
  ASSERT_EQ(lines.size(), 10u) << out.str();
  EXPECT_EQ(lines[0], "#[Histogram log format version 1.3]");
  EXPECT_EQ(lines[2],
            "#[StartTime: 1767323045.250 (seconds since epoch), 2026-01-02T03:04:05+00:00]");
  EXPECT_EQ(lines[3], "#[BaseTime: 1767323045.250 (seconds since epoch)]");
  EXPECT_THAT(lines[4], StartsWith("\"StartTimestamp\",\"Interval_Length\""));
  EXPECT_THAT(lines[5], StartsWith("Tag=short,0.000,1.000,2.769,HISTFA"));
  EXPECT_THAT(lines[6], StartsWith("Tag=long__with_a_comma,0.000,1.000,0.000,HISTFA"));
  EXPECT_THAT(lines[7], StartsWith("Tag=short,1.000,0.250,0.000,HISTFA"));
  EXPECT_THAT(lines[8], StartsWith("Tag=long__with_a_comma,1.000,0.250,70000.000,HISTFA"));
  EXPECT_EQ(lines[9], "");
  const std::vector<std::string> fields = absl::StrSplit(lines[8], ',');
  ASSERT_EQ(fields.size(), 5u);
  EXPECT_EQ(Decode(fields[4]).counts, CountsOf(run.seconds[1][1].intended));
}

TEST(HdrLog, RefusesARunThatBeganAtNoTime) {
  RunData run = EmptyRun(1);
  run.begun = "yesterday";
  std::ostringstream out;
  try {
    WriteHdrLog(run, out);
    FAIL() << "taken";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("'yesterday' is no ISO 8601 time"));
  }
  run.begun = "2026-01-02T03:04:05Z";
  out.setstate(std::ios::badbit);
  EXPECT_THROW(WriteHdrLog(run, out), std::runtime_error);
}

}  // namespace
}  // namespace castor::load
