#include "server/logging.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace castor::server {
namespace {

using nlohmann::json;

constexpr int64_t kWhen = 1'700'000'000'000'042;  // 2023-11-14T22:13:20.000042Z

TEST(FormatLogLine, JsonEscapesWhateverTheFieldsHold) {
  const std::string hostile = "line\nbreak \"quoted\" \\ tab\t \x01 snow\xe2\x98\x83";
  const std::string line = FormatLogLine(
      LogFormat::kJson, kWhen, LogLevel::kWarning, hostile,
      {{"text", hostile}, {"whole", int64_t{-7}}, {"real", 0.5}, {"yes", true}, {"literal", "x"}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const json parsed = json::parse(line);
  EXPECT_EQ(parsed["time"], "2023-11-14T22:13:20.000042Z");
  EXPECT_EQ(parsed["level"], "warning");
  EXPECT_EQ(parsed["message"], hostile);
  EXPECT_EQ(parsed["text"], hostile);
  EXPECT_EQ(parsed["whole"], -7);
  EXPECT_EQ(parsed["real"], 0.5);
  EXPECT_EQ(parsed["yes"], true);
  EXPECT_EQ(parsed["literal"], "x");
}

TEST(FormatLogLine, InvalidUtf8AndNonFiniteNumbersStillGiveJson) {
  const std::string line = FormatLogLine(LogFormat::kJson, kWhen, LogLevel::kInfo, "bad",
                                         {{"bytes", std::string_view("a\xff\xfe b")},
                                          {"nan", std::numeric_limits<double>::quiet_NaN()}});
  const json parsed = json::parse(line);
  EXPECT_EQ(parsed["bytes"], "a\xef\xbf\xbd\xef\xbf\xbd b");
  EXPECT_TRUE(parsed["nan"].is_null());
}

TEST(FormatLogLine, HumanLinesQuoteOnlyWhatNeedsIt) {
  EXPECT_EQ(FormatLogLine(LogFormat::kHuman, kWhen, LogLevel::kInfo, "listening on both",
                          {{"grpc", "127.0.0.1:50051"}, {"note", "two words"}, {"n", 3}}),
            "2023-11-14T22:13:20.000042Z info listening on both grpc=127.0.0.1:50051 "
            "note=\"two words\" n=3");
}

TEST(FormatLogLine, FieldsThatHaveNoneAreLeftOut) {
  for (const LogFormat format : {LogFormat::kHuman, LogFormat::kJson}) {
    const std::string line =
        FormatLogLine(format, kWhen, LogLevel::kInfo, "call",
                      {{"trace_id", LogValue::IfAny("0af7")}, {"span_id", LogValue::IfAny("")}});
    EXPECT_NE(line.find("trace_id"), std::string::npos) << line;
    EXPECT_NE(line.find("0af7"), std::string::npos) << line;
    EXPECT_EQ(line.find("span_id"), std::string::npos) << line;
  }
}

TEST(FormatLogLine, AForgedLineBreakStaysInItsLine) {
  const std::string line = FormatLogLine(LogFormat::kHuman, kWhen, LogLevel::kInfo,
                                         "m\n2023 error forged", {{"id", "x\ny=z"}});
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST(Logging, WritesAllQueuedLinesOnFlushAndHonoursTheLevel) {
  ::testing::internal::CaptureStderr();
  InitLogging(LogFormat::kJson, LogLevel::kInfo);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) {
        LogInfo("event", {{"thread", t}, {"i", i}});
        LogDebug("invisible");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  FlushLogging();
  LogError("after the flush");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 401);
  EXPECT_EQ(text.find("invisible"), std::string::npos);
  EXPECT_NE(text.find("after the flush"), std::string::npos);
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_TRUE(json::accept(text.substr(begin, end - begin)));
  }
}

// A reader that never reads fills the pipe; threads that log must not wait for it.
TEST(Logging, AStuckReaderCostsLinesNotTime) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const int saved = dup(STDERR_FILENO);
  ASSERT_EQ(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
  InitLogging(LogFormat::kHuman, LogLevel::kInfo);
  const std::string big(1000, 'x');
  constexpr int kLines = 6000;  // more than the pipe and the queue hold together
  for (int i = 0; i < kLines; ++i) LogInfo(big);
  EXPECT_GT(DroppedLogLines(), 0u);

  // Let the writer continue and end: queued lines must still arrive.
  size_t received = 0;
  std::thread reader([&] {
    char buffer[65536];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
      received += static_cast<size_t>(std::count(buffer, buffer + n, '\n'));
    }
  });
  FlushLogging();
  const uint64_t dropped = DroppedLogLines();
  dup2(saved, STDERR_FILENO);
  close(saved);
  close(ends[1]);
  reader.join();
  close(ends[0]);
  EXPECT_EQ(received + dropped, static_cast<size_t>(kLines));
}

}  // namespace
}  // namespace castor::server
