// castor-load's measurements, over real sockets, of a server whose answers leave at known times.
// Bounds allow for a busy machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "client/file.h"
#include "client/load/results/verdict.h"
#include "client/load/send/driver.h"
#include "client/load/send/recorder.h"
#include "client/load/send/server_counts.h"
#include "tests/bench/load_tester/scripted_server.h"
#include "tests/support/temporary_folder.h"

namespace castor::load {
namespace {

using bench::ScriptedServer;
using bench::ScriptOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Json = nlohmann::json;

constexpr int64_t kMs = 1'000'000;
const std::atomic<bool> kNever = false;

Workload OneToken(const Load& load, milliseconds duration) {
  ClassSpec spec;
  spec.name = "one";
  spec.call = AttendSpec{.lengths = FixedLength{1}, .heads = 1, .head_dim = 4};
  spec.deadline = seconds(20);
  Workload workload;
  workload.classes = {spec};
  workload.load = load;
  workload.duration = duration;
  workload.warm_up = seconds(0);
  return workload;
}

DriveOptions To(const ScriptedServer& server) {
  return {.endpoints = {server.address()}, .connections = 2};
}

RunData RunOf(const Workload& workload, const DriveOptions& options) {
  Driver driver(workload, options);
  driver.Prepare();
  return driver.Run({}, kNever);
}

struct Logged {
  int64_t begin_unix_ns = 0;
  std::vector<Json> requests;
};

Logged ReadLog(const std::string& path) {
  Logged log;
  std::string text;
  auto file = client::InputFile::Open(path);
  EXPECT_TRUE(file.ok() && file->Append(100 << 20, &text).ok());
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    const Json line = Json::parse(text.substr(begin, end - begin));
    if (line.contains("begin_unix_ns")) {
      log.begin_unix_ns = line["begin_unix_ns"];
    } else {
      log.requests.push_back(line);
    }
  }
  return log;
}

// The latency from the intended time with an ideal server.
int64_t TrueLatency(int64_t at_ns, const ScriptOptions& script) {
  const int64_t due = at_ns + script.service_ns;
  const int64_t every = script.stall_every_ns;
  if (due < every) return script.service_ns;
  return std::max(due, due / every * every + script.stall_ns) - at_ns;
}

// A stalled server delays the requests that are due during the stall, and percentiles from the
// intended time must show that.
TEST(LoadSend, PercentilesOfAServerWithStallsAreTrue) {
  const ScriptOptions script = {
      .service_ns = 50 * kMs, .stall_ns = 500 * kMs, .stall_every_ns = 2000 * kMs};
  const ScriptedServer server(script);
  const TemporaryFolder folder;
  DriveOptions options = To(server);
  options.request_log = folder / "log";
  const RunData run = RunOf(OneToken(OpenLoop{.rate = 200}, seconds(6)), options);
  const Logged log = ReadLog(folder / "log");
  std::vector<int64_t> latencies;
  for (const Json& request : log.requests) {
    const int64_t at = request["intended_ns"].get<int64_t>() + log.begin_unix_ns;
    latencies.push_back(TrueLatency(at - server.begin_unix_ns(), script));
  }
  std::sort(latencies.begin(), latencies.end());
  const Cell total = run.Total();
  ASSERT_EQ(static_cast<size_t>(total.of(Outcome::kOk)), latencies.size());
  for (const double quantile : {0.5, 0.9, 0.99}) {
    const auto rank = static_cast<size_t>(quantile * static_cast<double>(latencies.size()));
    const auto exact = static_cast<double>(latencies[rank]);
    const auto measured = static_cast<double>(total.intended.ValueAt(quantile));
    EXPECT_GE(measured, 0.99 * exact) << quantile;
    // Plus how late a machine may be that runs many tests at once.
    EXPECT_LE(measured, 1.01 * exact + 50 * kMs) << quantile;
  }
}

TEST(LoadSend, ThePlansRateIsSentWhateverTheServerDoes) {
  const ScriptedServer server({.service_ns = 300 * kMs});
  const RunData run =
      RunOf(OneToken(OpenLoop{.rate = 400, .constant = true}, seconds(1)), To(server));
  EXPECT_EQ(run.Total().planned(), 400);
  EXPECT_EQ(run.Total().of(Outcome::kOk), 400);
  EXPECT_GE(run.Total().intended.min(), 300 * kMs);
  ASSERT_FALSE(run.seconds.empty());
  EXPECT_GE(server.came(), 401) << "and one alone before";
}

// Little's law: answers a second times mean latency is the number of callers.
TEST(LoadSend, AClosedLoopKeepsItsCallersBusy) {
  const ScriptedServer server({.service_ns = 20 * kMs});
  const RunData run = RunOf(OneToken(ClosedLoop{.callers = 8}, seconds(3)), To(server));
  const Cell total = run.Total();
  const double rate = static_cast<double>(total.of(Outcome::kOk)) / 3;
  EXPECT_NEAR(rate * total.intended.mean() * 1e-9, 8, 8 * 0.02);
  EXPECT_EQ(total.planned(), total.of(Outcome::kOk));
}

TEST(LoadSend, CallersThink) {
  const ScriptedServer server({});
  const RunData run = RunOf(
      OneToken(ClosedLoop{.callers = 2, .think_time = milliseconds(100)}, seconds(1)), To(server));
  EXPECT_LE(run.Total().planned(), 20);
  EXPECT_GE(run.Total().planned(), 8);
}

TEST(LoadSend, RefusalsAreCountedByKind) {
  const ScriptedServer server({.refuse_share = 0.3, .seed = 2});
  Workload workload = OneToken(OpenLoop{.rate = 300}, seconds(1));
  const RunData run = RunOf(workload, To(server));
  const Cell total = run.Total();
  EXPECT_EQ(total.of(Outcome::kOk) + total.of(Outcome::kRefused), total.planned());
  EXPECT_NEAR(total.error_share(), 0.3, 0.1);
  ASSERT_EQ(total.messages.size(), 1U);
  EXPECT_EQ(total.messages.begin()->first, "RESOURCE_EXHAUSTED: by the script");
}

TEST(LoadSend, WrongAnswersDoNotStayUnnoticed) {
  const ScriptedServer server({.wrong_share = 0.05, .seed = 4});
  DriveOptions options = To(server);
  options.verify_share = 1;
  Workload workload = OneToken(OpenLoop{.rate = 400}, seconds(1));
  workload.classes[0].payloads = 4;
  const RunData run = RunOf(workload, options);
  const Verified& verified = run.Total().verified;
  EXPECT_EQ(verified.equal + verified.different, run.Total().of(Outcome::kOk));
  EXPECT_GT(verified.different, 0);
  EXPECT_LT(verified.different, verified.equal);
}

TEST(LoadSend, NoCallExpiresBeforeItsDeadline) {
  const ScriptedServer server({.service_ns = 100 * kMs});
  const TemporaryFolder folder;
  DriveOptions options = To(server);
  options.request_log = folder / "log";
  Workload workload = OneToken(OpenLoop{.rate = 200}, seconds(1));
  workload.classes[0].deadline = milliseconds(5);
  const RunData run = RunOf(workload, options);
  const Logged log = ReadLog(folder / "log");
  EXPECT_EQ(static_cast<int64_t>(log.requests.size()), run.Total().planned());
  int64_t expired = 0;
  for (const Json& request : log.requests) {
    if (request["outcome"] != "expired") continue;
    ++expired;
    EXPECT_GE(request["done_ns"].get<int64_t>() - request["intended_ns"].get<int64_t>(), 4 * kMs);
  }
  EXPECT_EQ(expired, run.Total().planned());
  EXPECT_EQ(run.Total().of(Outcome::kExpired), expired);
}

// A server that expects to be late refuses with the same code.
TEST(LoadSend, AnEarlyDeadlineExceededIsARefusal) {
  EndedCall call;
  call.status = grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "would be late");
  call.done = call.due + milliseconds(3);
  std::string message;
  EXPECT_EQ(OutcomeOf(call, milliseconds(5), &message), Outcome::kRefused);
  call.done = call.due + milliseconds(4);  // by a timer of milliseconds
  EXPECT_EQ(OutcomeOf(call, milliseconds(5), &message), Outcome::kExpired);
}

TEST(LoadSend, PlannedCancellationsHappen) {
  const ScriptedServer server({.service_ns = 2000 * kMs});
  Workload workload = OneToken(OpenLoop{.rate = 100}, seconds(1));
  workload.classes[0].cancel_share = 1;
  workload.classes[0].cancel_after = milliseconds(20);
  const RunData run = RunOf(workload, To(server));
  EXPECT_EQ(run.Total().of(Outcome::kCancelled), run.Total().planned());
  EXPECT_EQ(run.Total().counted(), 0);
}

TEST(LoadSend, BeyondTheCapRequestsAreDroppedAndSaidToBe) {
  const ScriptedServer server({.service_ns = 500 * kMs});
  const RunData run =
      RunOf(OneToken(OpenLoop{.rate = 200, .max_in_flight = 10}, seconds(1)), To(server));
  const Cell total = run.Total();
  EXPECT_GT(total.of(Outcome::kDropped), 100);
  EXPECT_EQ(total.of(Outcome::kOk) + total.of(Outcome::kDropped), total.planned());
  const Verdict verdict = Judge(run);
  EXPECT_THAT(ValidityText(verdict), ::testing::HasSubstr("client-dropped"));
}

TEST(LoadSend, AStopEndsWhatIsInFlight) {
  const ScriptedServer server({.service_ns = 60'000 * kMs});
  Workload workload = OneToken(OpenLoop{.rate = 100}, seconds(60));
  workload.classes[0].payloads = 1;
  Traffic traffic;  // without Prepare, which would wait for an answer
  traffic.classes = workload.classes;
  traffic.payloads.emplace_back(1);
  traffic.endpoints = {server.address()};
  traffic.tokens.resize(1);
  struct Ends : Sink {
    void Ended(EndedCall call) override { codes.push_back(call.status.error_code()); }
    void Dropped(const Planned&) override {}
    std::vector<grpc::StatusCode> codes;
  } ends;
  InFlight in_flight(1);
  const std::vector<Planned> schedule = MakeSchedule(workload, 0);
  Lane lane(traffic, ends, in_flight);
  lane.AwaitConnections(seconds(10));
  lane.StartOpen(schedule, 0, 1, 0, Clock::now());
  while (in_flight.all() < 5) std::this_thread::yield();
  lane.Stop();
  lane.Await();
  EXPECT_EQ(in_flight.all(), 0);
  EXPECT_GE(ends.codes.size(), 5U);
  EXPECT_THAT(ends.codes, ::testing::Each(grpc::StatusCode::CANCELLED));
}

TEST(LoadSend, MetricsAreWhereTheServerSaysThatTheyAre) {
  EXPECT_EQ(MetricsOf("127.0.0.1:50051", "127.0.0.1:9999"), "127.0.0.1:9999");
  EXPECT_EQ(MetricsOf("localhost:50051", "0.0.0.0:9999"), "127.0.0.1:9999");
  EXPECT_EQ(MetricsOf("10.1.2.3:50051", "0.0.0.0:9999"), "10.1.2.3:9999");
  EXPECT_EQ(MetricsOf("castor.example:50051", "[::]:9999"), "castor.example:9999");
  EXPECT_EQ(MetricsOf("10.1.2.3:50051", "10.9.9.9:9999"), "10.9.9.9:9999");
  // These cannot be read from here: the address is local to the server, or there is none.
  EXPECT_EQ(MetricsOf("10.1.2.3:50051", "127.0.0.1:9464"), "");
  EXPECT_EQ(MetricsOf("10.1.2.3:50051", ""), "");
  EXPECT_EQ(MetricsOf("dns:///castor:50051", "0.0.0.0:9464"), "");
}

}  // namespace
}  // namespace castor::load
