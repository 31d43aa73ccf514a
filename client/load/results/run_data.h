// A run's measurements, in a form that adds up: the counts of threads, endpoints and processes are
// added, and percentiles are never averaged. A saved run is a RunData as JSON (run_json.h), and
// every report and comparison is made from it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/load/results/histogram.h"
#include "client/load/workload/workload.h"

namespace castor::load {

// How a planned request ended.
enum class Outcome {
  kOk,
  kRefused,    // the server said no: RESOURCE_EXHAUSTED, UNAVAILABLE with a reason, or
               // DEADLINE_EXCEEDED before the deadline
  kExpired,    // no answer by the deadline
  kCancelled,  // by this client, as planned
  kFailed,     // any other error
  kDropped,    // never sent: the cap on requests in flight was reached
};
inline constexpr int kOutcomes = 6;
using Outcomes = std::array<int64_t, kOutcomes>;
const char* NameOf(Outcome outcome);  // "ok", "refused", ...
// All that were not cancelled; objectives and shares of errors refer to these.
int64_t CountedOf(const Outcomes& outcomes);

// Where the time of OK answers went, as castor-server reports.
struct Stages {
  Histogram queue, compute;
  Histogram server;   // from the request's bytes to handing the answer to gRPC
  Histogram network;  // from sending to the answer, minus `server`
  void Add(const Stages& other);
};

// How many answers equal that of the same request sent alone, and how many do not.
struct Verified {
  int64_t equal = 0;
  int64_t different = 0;
};

// The requests of one class at one endpoint.
struct Cell {
  Outcomes outcomes{};
  int64_t good = 0;  // OK, and within each of the class's latency limits

  Histogram intended;  // of OK answers, from the intended time: the headline
  Histogram service;   // of OK answers, from sending
  Histogram lag;       // of all sent requests: from the intended time to sending
  // For each of the class's latency goals: OK answers above the limit, and refused, expired, failed
  // and dropped requests. Cancelled ones count neither here nor in counted().
  std::vector<int64_t> above_goal;

  int64_t tokens = 0;                       // of OK answers
  std::map<std::string, int64_t> kernels;   // number of answers by kernel
  std::map<std::string, int64_t> messages;  // number of errors by kind; at most 32 kinds
  Stages stages;
  Verified verified;

  int64_t planned() const;  // all outcomes
  int64_t counted() const { return CountedOf(outcomes); }
  double error_share() const;  // share of counted() without an OK answer; 0 if counted() is
  int64_t of(Outcome outcome) const { return outcomes[static_cast<size_t>(outcome)]; }
  // Counts errors of a kind; beyond 32 kinds under a common name.
  void CountMessage(const std::string& message, int64_t times);
  void Add(const Cell& other);
};

// One second of the run, by intended time, over all endpoints.
struct Second {
  Outcomes outcomes{};
  int64_t good = 0;
  Histogram intended;     // of OK answers
  int64_t in_flight = 0;  // at its end
  void Add(const Second& other);
};

// How one process of the client fared.
struct ClientLoad {
  double seconds = 0;             // of the run, warm-up left out
  double cpu_seconds = 0;         // of this process in that time
  double busiest_thread = 0;      // share of one core that its busiest thread took, 0..1
  int64_t share = 0, shares = 1;  // it sent every `shares`-th request, from the share-th on
};

// A server's own count of attend and encode calls during the run, by its /metrics.
struct ServerCounts {
  std::string metrics;                     // where they were read; empty: they were not
  std::map<std::string, int64_t> counted;  // by status code; a negative count: it was restarted
  // The calls that this client ended there in that time: those of the warm-up, too.
  Outcomes calls{};
};

struct RunData {
  // The settings.
  std::string workload;  // as TOML: the file's text, or what the flags said
  std::string begun;     // UTC, ISO 8601
  std::string client_version, server_version;
  std::string server_setting;  // "models minilm; cpu: ..."; may be empty
  std::vector<std::string> endpoints;
  std::vector<std::string> classes;   // names
  std::vector<Objective> objectives;  // by class
  double asked_seconds = 0;
  double asked_rate = 0;  // mean of the plan; 0: closed loop
  bool open_loop = true;
  uint64_t seed = 1;

  // The measurements: cells[class][endpoint], seconds[second][class].
  std::vector<std::vector<Cell>> cells;
  std::vector<std::vector<Second>> seconds;
  std::vector<ClientLoad> clients;    // by process
  std::vector<ServerCounts> servers;  // by endpoint

  // Sums. Sums over classes have no `above_goal`, whose limits differ.
  Cell OfClass(size_t cls) const;
  Cell OfEndpoint(size_t endpoint) const;
  Cell Total() const;
  Second OfSecond(size_t second) const;

  // For how long requests were sent: the longest of the processes' times, or `asked_seconds`.
  double MeasuredSeconds() const;

  // Adds another share of the same plan: `asked_rate` adds up, too. Throws std::runtime_error, and
  // changes nothing, when it is of another plan, or a share that is already there.
  void Merge(const RunData& other);
};

}  // namespace castor::load
