// Frames as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "client/top/frame.h"
#include "tests/support/seeded.h"

namespace castor::top {
namespace {

using cli::Screen;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::ResultOf;
using ::testing::SizeIs;
using ::testing::StartsWith;

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

WorkRates Work(double requests, double errors, double tokens, double seconds) {
  WorkRates work{.requests = requests,
                 .errors = errors,
                 .total = 1000 * (requests + errors),
                 .tokens = tokens,
                 .batches = requests / 4,
                 .in_batches = requests,
                 .compute = requests / 1000};
  work.latency.Add(seconds / 2, 0);
  work.latency.Add(seconds, requests);
  work.latency.Add(HUGE_VAL, requests > 400 ? requests : 0);
  work.wait.Add(seconds / 4, requests);
  return work;
}

Rates SomeRates() {
  Rates rates;
  rates.seconds = 1;
  rates.version = "1.2.0";
  rates.device = "cuda:0";
  rates.backend = "NVIDIA H100";
  rates.ready = true;
  rates.uptime = 4683;
  rates.processor = 1.85;
  rates.load = {.saturation = 0.74,
                .queue_depth = 12,
                .queued_seconds = 0.36,
                .queued_seconds_limit = 30,
                .oldest_seconds = 0.0124,
                .requests = 14,
                .tokens = 7168,
                .bytes = 3.5 * (1 << 20),
                .requests_limit = 1024,
                .tokens_limit = 1 << 20,
                .bytes_limit = 2.0 * (1 << 30),
                .connections = 1};
  rates.memory = {.allocated = 9e10,
                  .reserved = 9.5e10,
                  .limit = 1e11,
                  .staging_used = 0,
                  .staging_cached = 1e8,
                  .resident = 4e8,
                  .heap = 3e8,
                  .others = {{"messages in_use", 2e6}, {"models", 0}}};
  rates.work[{"attend", "improved_clustered"}] = Work(48, 0, 24'600, 0.1);
  rates.work[{"attend", "cast"}] = {};
  rates.work[{"encode", "none"}] = Work(0, 2.5, 0, 1);
  rates.work[{"encode", "vanilla"}] = Work(1234, 0, 1.2e6, 10);
  rates.errors["CANCELLED"] = {.per_second = 0, .total = 12};
  rates.errors["RESOURCE_EXHAUSTED"] = {.per_second = 2.5, .total = 2500};
  rates.refusals["QUEUE_FULL"] = {.per_second = 2.5, .total = 123'456};
  rates.deadline_misses = {.per_second = 0, .total = 3};
  return rates;
}

View SomeView() {
  View view;
  view.servers = {{.name = "10.0.0.7:9464", .rates = SomeRates()}};
  for (int i = 0; i < 16; ++i) {
    Moment moment{.when = static_cast<double>(i)};
    if (i != 7) moment = {.when = moment.when, .requests = 100.0 * i, .p99 = 0.001 * (16 - i)};
    view.moments.push_back(moment);
  }
  view.clock = "12:34:56";
  return view;
}

constexpr Screen Plain(size_t columns, size_t rows = 0) {
  return {.columns = columns, .rows = rows, .color = false, .unicode = true};
}

TEST(FrameTest, OneServerOn80Columns) {
  EXPECT_EQ("\n" + Joined(FrameLines(SomeView(), Plain(80))), R"(
10.0.0.7:9464   ready   up 1:18:03   1.85 cores   1 connection         12:34:56
castor 1.2.0 on cuda:0, NVIDIA H100
load      ███████░░░ 74%   queue 12   queued 360 ms of 30.0 s   oldest 12.4 ms
in flight 14 of 1,024 requests   7,168 of 1.05M tokens   3.5 MiB of 2.0 GiB
requests  1,500/s     ▁▁▂▂▃▃▄ ▅▅▆▆▇▇██
p99       1.00 ms     ██▇▇▆▆▅ ▄▄▃▃▂▂▁▁

KERNEL                     REQ/S  TOK/S      P50      P95      P99 BATCH  ERR/S
attend improved_clustered   48.0  24.6k  75.0 ms  97.5 ms  99.5 ms   4.0      0
encode -                       0      0        -        -        -     -   2.50
encode vanilla             1.23k  1.20M   10.0 s  >10.0 s  >10.0 s   4.0      0
all                        1.28k  1.22M   9.90 s  >10.0 s  >10.0 s   4.0   2.50

errors    RESOURCE_EXHAUSTED 2.50/s (2,500)   CANCELLED 0/s (12)
refused   QUEUE_FULL 2.50/s (123k)
late      deadline misses 0/s (3)
memory    device 83.8 GiB of 93.1 GiB (88.5 GiB reserved)
          staging 0 B (95.4 MiB cached)   resident 381.5 MiB   heap 286.1 MiB
          messages in_use 1.9 MiB
)");
}

TEST(FrameTest, OneServerOn140Columns) {
  EXPECT_EQ("\n" + Joined(FrameLines(SomeView(), Plain(140))), R"(
10.0.0.7:9464   ready   up 1:18:03   1.85 cores   1 connection                                                                     12:34:56
castor 1.2.0 on cuda:0, NVIDIA H100
load      █████████████░░░░ 74%   queue 12   queued 360 ms of 30.0 s   oldest 12.4 ms
in flight 14 of 1,024 requests   7,168 of 1.05M tokens   3.5 MiB of 2.0 GiB
requests  1,500/s     ▁▁▂▂▃▃▄ ▅▅▆▆▇▇██   most 1,500/s
p99       1.00 ms     ██▇▇▆▆▅ ▄▄▃▃▂▂▁▁   most 16.0 ms

KERNEL                     REQ/S  TOK/S      P50      P95      P99  WAIT P95 BATCH  BUSY  ERR/S
attend improved_clustered   48.0  24.6k  75.0 ms  97.5 ms  99.5 ms   23.7 ms   4.0    5%      0
encode -                       0      0        -        -        -         -     -    0%   2.50
encode vanilla             1.23k  1.20M   10.0 s  >10.0 s  >10.0 s    2.38 s   4.0  123%      0
all                        1.28k  1.22M   9.90 s  >10.0 s  >10.0 s    2.38 s   4.0  128%   2.50

errors    RESOURCE_EXHAUSTED 2.50/s (2,500)   CANCELLED 0/s (12)
refused   QUEUE_FULL 2.50/s (123k)
late      deadline misses 0/s (3)
memory    device 83.8 GiB of 93.1 GiB (88.5 GiB reserved)   staging 0 B (95.4 MiB cached)   resident 381.5 MiB   heap 286.1 MiB
          messages in_use 1.9 MiB
)");
}

View Several() {
  View view = SomeView();
  Rates drains = SomeRates();
  drains.draining = true;
  drains.load.saturation = 0.05;
  view.servers.push_back({.name = "10.0.0.8:9464", .rates = drains});
  view.servers.push_back(
      {.name = "10.0.0.9:9464", .unreachable_seconds = 5.4, .error = "Connection refused"});
  view.servers.push_back(
      {.name = "[2001:db8::17]:9464", .rates = SomeRates(), .restarted_seconds = 12});
  return view;
}

TEST(FrameTest, SeveralServersOn80Columns) {
  EXPECT_EQ("\n" + Joined(FrameLines(Several(), Plain(80))), R"(
4 servers   2 ready   5.55 cores                                       12:34:56
requests  1,500/s     ▁▁▂▂▃▃▄ ▅▅▆▆▇▇██
p99       1.00 ms     ██▇▇▆▆▅ ▄▄▃▃▂▂▁▁

SERVER               STATE              LOAD  QUEUE  REQ/S      P99  ERR/S
10.0.0.7:9464        ready               74%     12  1.28k  >10.0 s   2.50
10.0.0.8:9464        draining             5%     12  1.28k  >10.0 s   2.50
10.0.0.9:9464        unreachable 5 s       -      -      -        -      -
[2001:db8::17]:9464  restarted 12 s      74%     12  1.28k  >10.0 s   2.50
all                                      74%     36  3.85k  >10.0 s   7.50

KERNEL                     REQ/S  TOK/S      P50      P95      P99 BATCH  ERR/S
attend improved_clustered    144  73.8k  75.0 ms  97.5 ms  99.5 ms   4.0      0
encode -                       0      0        -        -        -     -   7.50
encode vanilla             3.70k  3.60M   10.0 s  >10.0 s  >10.0 s   4.0      0
all                        3.85k  3.67M   9.90 s  >10.0 s  >10.0 s   4.0   7.50

errors    RESOURCE_EXHAUSTED 7.50/s (7,500)   CANCELLED 0/s (36)
refused   QUEUE_FULL 7.50/s (370k)
late      deadline misses 0/s (9)
memory    device 251.5 GiB of 279.4 GiB (265.4 GiB reserved)
          staging 0 B (286.1 MiB cached)   resident 1.1 GiB   heap 858.3 MiB
          messages in_use 5.7 MiB
)");
}

TEST(FrameTest, SeveralServersOn140Columns) {
  EXPECT_EQ("\n" + Joined(FrameLines(Several(), Plain(140))), R"(
4 servers   2 ready   5.55 cores                                                                                                   12:34:56
requests  1,500/s     ▁▁▂▂▃▃▄ ▅▅▆▆▇▇██   most 1,500/s
p99       1.00 ms     ██▇▇▆▆▅ ▄▄▃▃▂▂▁▁   most 16.0 ms

SERVER               STATE              LOAD  QUEUE  REQ/S  TOK/S      P50      P95      P99  BUSY  ERR/S   RESIDENT
10.0.0.7:9464        ready               74%     12  1.28k  1.22M   9.90 s  >10.0 s  >10.0 s  128%   2.50  381.5 MiB
10.0.0.8:9464        draining             5%     12  1.28k  1.22M   9.90 s  >10.0 s  >10.0 s  128%   2.50  381.5 MiB
10.0.0.9:9464        unreachable 5 s       -      -      -      -        -        -        -     -      -          -
[2001:db8::17]:9464  restarted 12 s      74%     12  1.28k  1.22M   9.90 s  >10.0 s  >10.0 s  128%   2.50  381.5 MiB
all                                      74%     36  3.85k  3.67M   9.90 s  >10.0 s  >10.0 s  128%   7.50    1.1 GiB

KERNEL                     REQ/S  TOK/S      P50      P95      P99  WAIT P95 BATCH  BUSY  ERR/S
attend improved_clustered    144  73.8k  75.0 ms  97.5 ms  99.5 ms   23.8 ms   4.0    5%      0
encode -                       0      0        -        -        -         -     -    0%   7.50
encode vanilla             3.70k  3.60M   10.0 s  >10.0 s  >10.0 s    2.38 s   4.0  123%      0
all                        3.85k  3.67M   9.90 s  >10.0 s  >10.0 s    2.38 s   4.0  128%   7.50

errors    RESOURCE_EXHAUSTED 7.50/s (7,500)   CANCELLED 0/s (36)
refused   QUEUE_FULL 7.50/s (370k)
late      deadline misses 0/s (9)
memory    device 251.5 GiB of 279.4 GiB (265.4 GiB reserved)   staging 0 B (286.1 MiB cached)   resident 1.1 GiB   heap 858.3 MiB
          messages in_use 5.7 MiB
)");
}

TEST(FrameTest, TablesAreSortedAsAsked) {
  View view = SomeView();
  const auto first_row = [&](Sort sort) {
    view.sort = sort;
    const std::vector<std::string> lines = FrameLines(view, Plain(80));
    for (size_t i = 0; i + 1 < lines.size(); ++i) {
      if (lines[i].starts_with("KERNEL")) return lines[i + 1];
    }
    return std::string();
  };
  EXPECT_THAT(first_row(Sort::kName), StartsWith("attend improved_clustered"));
  EXPECT_THAT(first_row(Sort::kRequests), StartsWith("encode vanilla"));
  EXPECT_THAT(first_row(Sort::kP99), StartsWith("encode vanilla"));
  EXPECT_THAT(first_row(Sort::kErrors), StartsWith("encode - "));
}

TEST(FrameTest, AServerThatCannotBeReadHasNoOldFigures) {
  View view;
  view.servers = {{.name = "10.0.0.7:9464", .unreachable_seconds = 5.4, .error = "refused"}};
  const std::string text = Joined(FrameLines(view, Plain(80)));
  EXPECT_THAT(text, StartsWith("10.0.0.7:9464   unreachable since 5 s\nrefused\n"));
  EXPECT_THAT(text, Not(HasSubstr("KERNEL")));
  view.servers[0].unreachable_seconds.reset();
  EXPECT_THAT(Joined(FrameLines(view, Plain(80))), HasSubstr("not read yet"));
}

TEST(FrameTest, AFirstReadingHasNoRates) {
  View view = SomeView();
  view.servers[0].rates->seconds = 0;
  for (auto& [key, work] : view.servers[0].rates->work) work = {.total = work.total};
  EXPECT_THAT(Joined(FrameLines(view, Plain(80))),
              HasSubstr("encode vanilla                 -      -        -        -        -"));
}

TEST(FrameTest, StatesAreSaid) {
  View view = SomeView();
  Rates& rates = *view.servers[0].rates;
  const auto head = [&] { return FrameLines(view, Plain(80))[0]; };
  view.servers[0].restarted_seconds = 12;
  EXPECT_THAT(head(), HasSubstr("restarted 12 s ago"));
  rates.ready = false;
  EXPECT_THAT(head(), HasSubstr("not ready"));
  rates.draining = true;
  EXPECT_THAT(head(), HasSubstr("draining"));
  rates.stalled = true;
  EXPECT_THAT(head(), HasSubstr("stalled"));
  rates.healthy = false;
  EXPECT_THAT(head(), HasSubstr("device failed"));
  view.paused = true;
  EXPECT_THAT(head(), HasSubstr("paused"));
}

TEST(FrameTest, KeysAreAtTheBottomAndHelpFitsAnySmallTerminal) {
  View view = SomeView();
  view.keys = true;
  const std::vector<std::string> lines = FrameLines(view, Plain(80, 24));
  ASSERT_EQ(lines.size(), 24u);
  EXPECT_THAT(lines.back(), StartsWith("q quit   p pause   s sort by name"));
  view.help = true;
  const std::vector<std::string> help = FrameLines(view, Plain(80, 24));
  EXPECT_THAT(help, AllOf(SizeIs(Le(24u)), Each(Not(EndsWith("…")))));
}

TEST(FrameTest, ColoursAreOnlyWhereTheyAreWanted) {
  const Screen color{.columns = 80, .rows = 0, .color = true, .unicode = true};
  EXPECT_THAT(Joined(FrameLines(SomeView(), color)), HasSubstr("\x1b[32mready\x1b[0m"));
  EXPECT_THAT(Joined(FrameLines(SomeView(), Plain(80))), Not(HasSubstr("\x1b")));
  const Screen ascii{.columns = 80, .rows = 0, .color = false, .unicode = false};
  for (const char c : Joined(FrameLines(SomeView(), ascii))) EXPECT_LT(static_cast<int>(c), 128);
}

class RandomFrameTest : public Seeded, public ::testing::Test {};

TEST_F(RandomFrameTest, FitsAnyScreenWhateverAServerSays) {
  for (int round = 0; round < 300; ++round) {
    View view = Several();
    for (ServerView& server : view.servers) {
      for (int k = UpTo(60); k > 0; --k) server.name += static_cast<char>(Uniform(1, 255));
      if (!server.rates) continue;
      for (int k = UpTo(20); k > 0; --k) {
        const std::string name(static_cast<size_t>(UpTo(50)), static_cast<char>(Uniform(1, 255)));
        server.rates->work[{name, "x"}] = Work(Uniform(0, 1'000'000), 1, 1e18, 1e9);
        server.rates->errors[name] = {.per_second = 1e300, .total = 1e300};
      }
      server.rates->load.saturation = Uniform(-10, 10);
      server.rates->load.queue_depth = -1e300;
      server.rates->memory.resident = 1e300;
      server.rates->uptime = 1e300;
    }
    view.keys = Uniform(0, 1) == 0;
    view.help = Uniform(0, 9) == 0;
    const Screen screen =
        Plain(static_cast<size_t>(Uniform(1, 200)), static_cast<size_t>(Uniform(1, 60)));
    const std::vector<std::string> lines = FrameLines(view, screen);
    EXPECT_THAT(lines, SizeIs(Le(screen.rows)));
    EXPECT_THAT(lines, Each(ResultOf([](const std::string& line) { return cli::CellsOf(line); },
                                     Le(screen.columns - 1))));
  }
}

}  // namespace
}  // namespace castor::top
