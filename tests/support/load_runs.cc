#include "tests/support/load_runs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <queue>
#include <random>
#include <string>
#include <vector>

namespace castor {
namespace {

using load::Cell;
using load::Outcome;
using load::RunData;
using load::Second;

constexpr int kEndpoints = 2;
constexpr double kNetwork = 180e-6, kDecode = 60e-6, kCopy = 90e-6, kSendCost = 15e-6;  // s

int64_t Nanoseconds(double seconds) { return std::llround(std::max(0.0, seconds) * 1e9); }

// A server that runs one request after the other, and refuses those for whom it has no room.
struct Server {
  double free_at = 0;
  std::priority_queue<double, std::vector<double>, std::greater<>> ends;  // of what waits or runs

  int64_t Waiting(double now) {
    while (!ends.empty() && ends.top() <= now) ends.pop();
    return static_cast<int64_t>(ends.size());
  }
};

const char* const kToml = R"(# Chat-sized calls beside whole documents.
duration = "60s"
warm_up = "5s"
seed = 20261123

[load]
arrivals = "poisson"
rate = 220

[[class]]
name = "interactive"
weight = 9
call = "attend"
lengths = { lognormal = { median = 96, sigma = 0.6, greatest = 512 } }
deadline = "2s"
objective = ["p50 <= 5ms", "p99 <= 50ms", "errors <= 0.1%"]

[[class]]
name = "documents"
weight = 1
call = "encode"
model = "all-MiniLM-L6-v2"
lengths = { uniform = [200, 256] }
token = "secret-of-the-documents"
objective = ["p99 <= 500ms"]
)";

std::vector<std::string> ClassNames(int count) {
  std::vector<std::string> names = {"interactive", "documents"};
  while (static_cast<int>(names.size()) < count) {
    names.push_back("class " + std::to_string(names.size() + 1));
  }
  names.resize(static_cast<size_t>(count));
  return names;
}

load::LatencyGoal Goal(double quantile, int64_t milliseconds) {
  return {quantile, std::chrono::milliseconds(milliseconds)};
}

RunData EmptyRun(const SimulatedRun& simulated) {
  RunData run;
  run.workload_toml = kToml;
  run.begun = "2026-11-23T12:09:10Z";
  run.client_version = "0.1.0";
  run.server_version = "castor-server 0.1.0";
  run.endpoints = {"10.0.4.17:50051", "10.0.4.18:50051"};
  run.classes = ClassNames(simulated.classes);
  run.objectives.resize(run.classes.size());
  run.objectives[0] = {{Goal(0.5, 5), Goal(0.99, 50)}, 0.001};
  if (simulated.classes > 1) run.objectives[1] = {{Goal(0.99, 500)}, std::nullopt};
  run.asked_seconds = simulated.seconds;
  run.asked_rate = simulated.rate;
  run.cells.assign(run.classes.size(), std::vector<Cell>(kEndpoints));
  for (size_t cls = 0; cls < run.classes.size(); ++cls) {
    for (Cell& cell : run.cells[cls]) {
      cell.above_goal.resize(run.objectives[cls].latencies.size());
    }
  }
  run.seconds.assign(static_cast<size_t>(std::ceil(simulated.seconds)),
                     std::vector<Second>(run.classes.size()));
  return run;
}

class Simulation {
 public:
  explicit Simulation(const SimulatedRun& simulated)
      : simulated_(simulated), random_(simulated.seed), run_(EmptyRun(simulated)) {}

  RunData Run() {
    std::exponential_distribution<double> gap(simulated_.rate);
    for (double at = gap(random_); at < simulated_.seconds; at += gap(random_)) One(at);
    for (int64_t i = 0; i < 40; ++i)
      Failure(0.4 * simulated_.seconds + 0.01 * static_cast<double>(i));
    run_.clients = {{.seconds = simulated_.seconds,
                     .cpu_seconds = 0.21 * simulated_.seconds,
                     .busiest_thread = 0.19,
                     .threads = 3,
                     .calibrated_rate = 41'300}};
    Flights();
    return std::move(run_);
  }

 private:
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  // Nine of ten are of the first class; the others share the rest.
  size_t DrawClass() {
    const size_t classes = run_.classes.size();
    if (classes == 1 || Uniform() < 0.9) return 0;
    return 1 + random_() % (classes - 1);
  }

  double Compute(size_t cls) {  // seconds
    const double median = cls == 0 ? 0.0022 : 0.012 * static_cast<double>(cls);
    return std::lognormal_distribution<double>(std::log(median), cls == 0 ? 0.5 : 0.25)(random_) /
           simulated_.speed;
  }

  void One(double intended) {
    const size_t cls = DrawClass();
    const size_t endpoint = random_() % kEndpoints;
    Cell& cell = run_.cells[cls][endpoint];
    Second& second = SecondOf(intended, cls);

    // The sender takes a little for each, and waits for room if it has a limit.
    double sent = std::max(intended + kSendCost * (0.5 + Uniform()), last_sent_ + kSendCost);
    while (!in_flight_.empty() && in_flight_.top() <= sent) in_flight_.pop();
    while (simulated_.max_sent > 0 &&
           static_cast<int64_t>(in_flight_.size()) >= simulated_.max_sent) {
      sent = std::max(sent, in_flight_.top());
      in_flight_.pop();
    }
    last_sent_ = sent;
    const int64_t lag = Nanoseconds(sent - intended);
    cell.lag.Record(lag);
    second.max_lag_ns = std::max(second.max_lag_ns, lag);
    cell.request_bytes += cls == 0 ? 196'608 : 1'400;

    Server& server = servers_[endpoint];
    const double arrived = sent + kNetwork / 2 * (0.7 + 0.6 * Uniform()) + kDecode;
    if (server.Waiting(arrived) >= simulated_.max_waiting) {
      End(cls, endpoint, intended, Outcome::kRefused);
      cell.refusal.Record(Nanoseconds(arrived - sent + kNetwork / 2));
      ++cell.messages["RESOURCE_EXHAUSTED: QUEUE_FULL: the queue of requests is full"];
      return;
    }
    double begin = std::max(arrived, server.free_at);
    const double stall_end = simulated_.stall_at + simulated_.stall_seconds;
    if (begin >= simulated_.stall_at && begin < stall_end) begin = stall_end;
    const double compute = Compute(cls);
    const double end = begin + kCopy + compute + kCopy / 2;
    server.free_at = end - kCopy / 2;
    server.ends.push(end);
    const double back = end + kNetwork / 2 * (0.7 + 0.6 * Uniform());
    in_flight_.push(back);
    flights_.push_back({sent, back, cls});
    if (cls > 0 && back - intended > 1.6) {
      End(cls, endpoint, intended, Outcome::kExpired);
      ++cell.messages["DEADLINE_EXCEEDED: the deadline passed while the request was queued"];
      return;
    }
    Answer(cls, endpoint, intended, sent, back);
    load::Stages& stages = cell.stages;
    stages.decode.Record(Nanoseconds(kDecode * (0.8 + 0.4 * Uniform())));
    stages.queue.Record(Nanoseconds(begin - arrived));
    stages.copy_in.Record(Nanoseconds(kCopy));
    stages.compute.Record(Nanoseconds(compute));
    stages.copy_out.Record(Nanoseconds(kCopy / 2));
    stages.server.Record(Nanoseconds(end - arrived + kDecode + 30e-6));
    stages.network.Record(Nanoseconds(back - sent - (end - arrived + kDecode + 30e-6)));
    ++stages.predicted;
    stages.predicted_within += Uniform() < 0.93 ? 1 : 0;
  }

  void Answer(size_t cls, size_t endpoint, double intended, double sent, double back) {
    Cell& cell = run_.cells[cls][endpoint];
    const int64_t latency = Nanoseconds(back - intended);
    cell.intended.Record(latency);
    cell.service.Record(Nanoseconds(back - sent));
    SecondOf(intended, cls).intended.Record(latency);
    bool good = true;
    for (size_t i = 0; i < run_.objectives[cls].latencies.size(); ++i) {
      if (latency <= run_.objectives[cls].latencies[i].limit.count()) continue;
      ++cell.above_goal[i];
      // Only the goals of the tail say that an answer is bad.
      good = good && run_.objectives[cls].latencies[i].quantile < 0.9;
    }
    cell.good += good ? 1 : 0;
    SecondOf(intended, cls).good += good ? 1 : 0;
    cell.tokens += cls == 0 ? 96 : 230;
    ++cell.sequences;
    cell.answer_bytes += cls == 0 ? 65'536 : 1'536;
    ++cell.kernels[cls == 0 ? "vanilla" : Uniform() < 0.97 ? "improved_clustered" : "vanilla"];
    if (Uniform() < 0.01) {
      ++cell.verified.asked;
      ++cell.verified.equal;
      if (cls > 0) {
        ++cell.verified.recomputed;
        cell.verified.error_e9.Record(
            std::llround(std::lognormal_distribution<double>(std::log(4.2e6), 0.4)(random_)));
      }
    }
    End(cls, endpoint, intended, Outcome::kOk);
  }

  void Failure(double at) {
    ++run_.cells[0][1].messages
          ["UNAVAILABLE: failed to connect to all addresses; last error: "
           "Connection refused <10.0.4.18:50051>"];
    End(0, 1, at, Outcome::kFailed);
  }

  void End(size_t cls, size_t endpoint, double intended, Outcome outcome) {
    ++run_.cells[cls][endpoint].outcomes[static_cast<size_t>(outcome)];
    ++SecondOf(intended, cls).outcomes[static_cast<size_t>(outcome)];
  }

  Second& SecondOf(double at, size_t cls) {
    const auto index = static_cast<size_t>(at);
    return run_.seconds[std::min(index, run_.seconds.size() - 1)][cls];
  }

  // What was in flight at the end of each second.
  void Flights() {
    for (const Flight& flight : flights_) {
      for (auto i = static_cast<size_t>(flight.sent); i < run_.seconds.size(); ++i) {
        if (flight.back <= static_cast<double>(i + 1)) break;
        ++run_.seconds[i][flight.cls].in_flight;
      }
    }
  }

  struct Flight {
    double sent, back;
    size_t cls;
  };

  const SimulatedRun simulated_;
  std::mt19937_64 random_;
  RunData run_;
  std::array<Server, kEndpoints> servers_;
  std::priority_queue<double, std::vector<double>, std::greater<>> in_flight_;  // their ends
  std::vector<Flight> flights_;
  double last_sent_ = 0;
};

}  // namespace

RunData SimulateRun(const SimulatedRun& simulated) { return Simulation(simulated).Run(); }

load::Verdict VerdictOf(const RunData& run, bool valid) {
  load::Verdict verdict;
  verdict.validity = {
      {"duration", true, "The run lasted 60 s, at least the 10 s that the rule asks for."},
      {"early-stopping", true,
       "For interactive p99 <= 50 ms, 11,873 requests are enough for 99% confidence."},
      {"stationary", true, "Work in flight grew by 0.4% of its mean over the run, at most 10%."},
      {"client-lag", valid,
       valid ? "p99 of the client's lag is 23 us, below 1 ms."
             : "p99 of the client's lag is 812 ms, more than 1 ms and more than 5% of the median "
               "latency: requests were sent late, and the load was not the one asked for."},
      {"client-cpu", true, "The busiest thread took 19% of a core, at most 90%."},
      {"client-dropped", true, "No request was dropped by the cap on requests in flight."},
      {"all-answered", true, "Every request ended."},
      {"counts-agree", true, "The servers counted the same requests as the client, by outcome."},
      {"verified", true, "121 of 121 verified answers had the bytes of the request sent alone."},
  };
  for (size_t cls = 0; cls < run.classes.size() && cls < run.objectives.size(); ++cls) {
    const Cell cell = run.OfClass(cls);
    for (const load::LatencyGoal& goal : run.objectives[cls].latencies) {
      const double limit_ms = static_cast<double>(goal.limit.count()) / 1e6;
      const double value_ms = static_cast<double>(cell.intended.ValueAt(goal.quantile)) / 1e6;
      char text[200];
      std::snprintf(text, sizeof(text), "p%g of %s is %.1f ms, and the objective is %.0f ms.",
                    100 * goal.quantile, run.classes[cls].c_str(), value_ms, limit_ms);
      verdict.objectives.push_back(
          {run.classes[cls] + " p" + std::to_string(static_cast<int>(100 * goal.quantile)),
           value_ms <= limit_ms, text});
    }
  }
  return verdict;
}

}  // namespace castor
