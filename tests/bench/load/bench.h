// The common parts of load_bench's scenarios: the report, the server, requests, and runs of them.
// castor-load's library sends all calls.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/load/send/lane.h"
#include "client/metrics/page.h"
#include "tests/integration/process/server_process.h"

namespace castor::bench {

using load::Clock;
using load::Payload;
using Seconds = std::chrono::duration<double>;

// ---- the table of what was measured

class Report {
 public:
  // The rows that follow belong to this scenario.
  void Begin(std::string scenario) { scenario_ = std::move(scenario); }

  // A measured value against its bound.
  void AtMost(const std::string& what, double value, double bound, std::string_view unit);
  void AtLeast(const std::string& what, double value, double bound, std::string_view unit);
  // Something that holds or not.
  void Check(const std::string& what, bool holds, const std::string& measured);
  // A figure without a bound.
  void Note(const std::string& what, const std::string& measured);

  int passed() const { return passed_; }
  int missed() const { return missed_; }

 private:
  void Row(const std::string& what, const std::string& measured, const std::string& bound,
           std::optional<bool> pass);

  std::string scenario_;
  int passed_ = 0, missed_ = 0;
};

// Three significant digits or so: "0.123 ms", "45.6 %", "1234".
std::string Figure(double value, std::string_view unit = "");
// One after another: "0.123, 45.6".
std::string Figures(const std::vector<double>& values);

// ---- the scenarios

struct Settings {
  std::string server;                                    // the program
  std::string model;                                     // a model's directory
  std::string bare_server = CASTOR_BARE_SERVER_PROGRAM;  // bare_server.cc
  Seconds phase{10};                                     // of each measuring phase
  int rounds = 3;  // how often phases that are compared take turns
};

struct Scenario {
  const char* name;
  const char* about;
  void (*run)(const Settings&, Report&);
  bool by_default = true;  // otherwise only when it is named
};
const std::vector<Scenario>& Scenarios();

void ShortDuringLong(const Settings& settings, Report& report);
void CallCost(const Settings& settings, Report& report);
void HugeAttend(const Settings& settings, Report& report);
void HugeText(const Settings& settings, Report& report);
void ManySpans(const Settings& settings, Report& report);
void Overload(const Settings& settings, Report& report);
void GreedyTenant(const Settings& settings, Report& report);
void ExactlyOnce(const Settings& settings, Report& report);
void Soak(const Settings& settings, Report& report);

// ---- the server

// While it lives, every thread of this program, and each that it starts, runs on `cpu` alone.
class PinnedTo {
 public:
  explicit PinnedTo(int cpu);
  ~PinnedTo();

 private:
  cpu_set_t before_;
};

// A castor-server with a free port, no calibration, and these further flags.
class Server {
 public:
  // On the processor `cpu` alone unless that is negative. Ends this program if it does not start.
  Server(const std::string& program, std::vector<std::string> flags, int cpu = -1);

  const std::string& address() const { return address_; }
  testing::ServerProcess& process() { return *process_; }
  // Empty if it does not come.
  client::MetricsPage Metrics() const;
  std::chrono::nanoseconds CpuTime() const;  // so far

  // Checks that the gauges of what is in flight or queued are 0 within two seconds.
  void CheckNothingLeftBehind(Report& report) const;
  // Asks it to drain, and checks its exit code.
  void CheckDrain(Report& report);

 private:
  std::unique_ptr<testing::ServerProcess> process_;
  std::string address_, metrics_;
};

// ---- requests

// Exact self-attention over one sequence of Gaussian float32.
Payload Attend(int64_t tokens, int64_t heads, int64_t head_dim, uint64_t seed);
Payload Encode(const std::vector<std::string>& texts);
std::vector<Payload> ShortAttends(int count, uint64_t seed);  // 64 to 512 tokens
std::vector<Payload> ShortTexts(int count, uint64_t seed);    // 8 to 20 words

// ---- runs

struct Outcome {
  Clock::time_point intended{}, sent{}, ended{};
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  std::string reason{};
};

struct Calls {
  Clock::time_point begin{};
  Seconds length{0};  // of the schedule
  std::chrono::nanoseconds deadline{0};
  std::vector<Outcome> calls{};

  void Append(const Calls& more);
  // Milliseconds from the intended time. A failed call counts as one that took its whole deadline.
  std::vector<double> Latencies() const;
  double P99Lag() const;      // by how much sending was late, in ms
  std::string Codes() const;  // "OK 120, RESOURCE_EXHAUSTED QUEUE_FULL 3"
};

double Milliseconds(Clock::duration duration);
// q of 0 to 1; 0 if there are none.
double Quantile(std::vector<double> values, double q);

struct Traffic {
  std::vector<Payload> payloads{};                              // drawn in turn
  std::chrono::nanoseconds deadline{std::chrono::seconds(10)};  // from the intended time
  std::string tenant{};
  std::optional<std::chrono::nanoseconds> cancel_after{};
  int connections = 8;
  uint64_t seed = 1;
};

// Poisson arrivals, or evenly spaced ones. `stop`, if given, ends the schedule early; calls that
// are in flight then are left out.
Calls RunOpen(const Server& server, const Traffic& traffic, double rate, Seconds length,
              bool constant = false, const std::atomic<bool>* stop = nullptr);

// `callers` that each send their next request once they have an answer, until `length` has passed.
Calls RunClosed(const Server& server, const Traffic& traffic, int callers, Seconds length);

// OK answers a second of RunClosed.
double Capacity(const Server& server, const Traffic& traffic, int callers, Seconds length);

}  // namespace castor::bench
