#include "client/load/output/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "tests/support/load_runs.h"

namespace castor::load {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

void Fill(Cell* cell, int64_t ok, int64_t microseconds) {
  cell->outcomes[static_cast<int>(Outcome::kOk)] = ok;
  cell->good = ok;
  cell->intended.Record(microseconds * 1000 + 20'000, ok);
  cell->service.Record(microseconds * 1000, ok);
  cell->lag.Record(20'000, ok);
}

// Small enough that every figure of its summary can be checked by hand.
RunData SmallRun() {
  RunData run;
  run.begun = "2026-11-23T12:09:10Z";
  run.client_version = "0.1.0";
  run.endpoints = {"a:1", "b:1"};
  run.classes = {"short", "long"};
  run.objectives.resize(2);
  run.asked_seconds = 10;
  run.asked_rate = 150;
  run.clients = {{.seconds = 10, .cpu_seconds = 2.5, .busiest_thread = 0.2, .threads = 3}};
  run.cells.assign(2, std::vector<Cell>(2));
  Fill(&run.cells[0][0], 700, 2'000);
  Fill(&run.cells[0][1], 690, 2'000);
  Fill(&run.cells[1][0], 60, 40'000);
  Fill(&run.cells[1][1], 40, 40'000);
  Cell& cell = run.cells[0][1];
  cell.outcomes[static_cast<int>(Outcome::kRefused)] = 9;
  cell.outcomes[static_cast<int>(Outcome::kFailed)] = 1;
  cell.refusal.Record(300'000, 9);
  cell.messages = {{"UNAVAILABLE: gone\n", 1}, {"RESOURCE_EXHAUSTED: full", 9}};
  Stages& stages = run.cells[1][0].stages;
  for (Histogram* histogram : {&stages.decode, &stages.copy_in, &stages.copy_out}) {
    histogram->Record(50'000, 60);
  }
  stages.network.Record(150'000, 60);
  stages.queue.Record(9'700'000, 60);
  stages.compute.Record(30'000'000, 60);
  stages.server.Record(39'850'000, 60);
  stages.predicted = 60;
  stages.predicted_within = 45;
  run.cells[1][1].verified.asked = 4;
  run.cells[1][1].verified.equal = 4;
  return run;
}

TEST(SummaryTest, SaysTheVerdictFirstAndThenAllFigures) {
  Verdict verdict;
  verdict.validity = {{"duration", true, "It lasted 10 s."}, {"client-lag", false, "Sent late."}};
  verdict.objectives = {{"short p99", true, "2.02 ms is below 5 ms."}};
  EXPECT_EQ(SummaryText(SmallRun(), verdict), R"(INVALID: client-lag; objectives met
met     short p99   2.02 ms is below 5 ms.
FAILED  client-lag  Sent late.
ok      duration    It lasted 10 s.

Requests, by class
CLASS  PLANNED  OK     REFUSED  EXPIRED  CANCELLED  FAILED  DROPPED  OK/S  GOOD/S  GOOD
short  1,400    1,390  9        0        0          1       0        139   139     99.3%
long   100      100    0        0        0          0       0        10.0  10.0    100%
all    1,500    1,490  9        0        0          1       0        149   149     99.3%

Latency of OK answers
CLASS  TIME           P50      P90      P99      P99.9    MAX
short  from intended  2.02 ms  2.02 ms  2.02 ms  2.02 ms  2.02 ms
       from sending   2.00 ms  2.00 ms  2.00 ms  2.00 ms  2.00 ms
       client's lag   20.0 us  20.0 us  20.0 us  20.0 us  20.0 us
       to a refusal   300 us   300 us   300 us   300 us   300 us
long   from intended  40.0 ms  40.0 ms  40.0 ms  40.0 ms  40.0 ms
       from sending   40.0 ms  40.0 ms  40.0 ms  40.0 ms  40.0 ms
       client's lag   20.0 us  20.0 us  20.0 us  20.0 us  20.0 us

Requests, by endpoint
ENDPOINT  PLANNED  OK   REFUSED  EXPIRED  CANCELLED  FAILED  DROPPED  OK/S  GOOD/S  GOOD   P50      P99
a:1       760      760  0        0        0          0       0        76.0  76.0    100%   2.02 ms  40.0 ms
b:1       740      730  9        0        0          1       0        73.0  73.0    98.6%  2.02 ms  40.0 ms

Where the time went, by the server's account: mean, p99
CLASS  NETWORK         DECODE            QUEUE             COPY IN           COMPUTE           COPY OUT          SERVER, ALL       PREDICTED WITHIN 25%
long   150 us, 150 us  50.0 us, 50.0 us  9.70 ms, 9.70 ms  50.0 us, 50.0 us  30.0 ms, 30.0 ms  50.0 us, 50.0 us  39.9 ms, 39.9 ms  75.0%

Verification: answers beside the same request sent alone, and computed exactly
CLASS  COMPARED  EQUAL  DIFFERENT  RECOMPUTED  ERROR P50  ERROR P99  ERROR MAX
long   4         4      0          0           -          -          -

Errors
COUNT  CLASS  MESSAGE
9      short  RESOURCE_EXHAUSTED: full
1      short  UNAVAILABLE: gone

load      open loop, 150 requests/s, 10 s, begun 2026-11-23T12:09:10Z
versions  castor-load 0.1.0, server unknown
client    10 s, 25.0% of a core on 3 threads, the busiest 20.0%
)");
}

TEST(SummaryTest, IsOneLineForEachStatement) {
  RunData run = SmallRun();
  EXPECT_THAT(SummaryText(run, {}), StartsWith("VALID; no objectives\n"));
  run.classes[0] = "a name\nof two lines \x1b[31m, longer than a column of a table can be";
  const std::string text = SummaryText(run, {});
  EXPECT_THAT(text, HasSubstr("\na name of two lines \xef\xbf\xbd[31m, long…"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(SummaryTest, AClosedLoopAndAnUnfinishedRunAreNamed) {
  RunData run = SmallRun();
  run.open_loop = false;
  run.clients[0].unfinished = 3;
  const std::string text = SummaryText(run, {});
  EXPECT_THAT(text, HasSubstr("closed loop, 10 s"));
  EXPECT_THAT(text, HasSubstr("3 requests never ended"));
}

TEST(SummaryTest, ARunOfNothingHasAVerdictToo) {
  EXPECT_THAT(SummaryText(RunData(), {}), StartsWith("VALID; no objectives\n"));
}

}  // namespace
}  // namespace castor::load
