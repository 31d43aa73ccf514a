// What two readings of a server's /metrics say of the time between them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/metrics/page.h"
#include "client/top/histogram.h"

namespace castor::top {

// Of a family that a server does not have: nullopt.
using Gauge = std::optional<double>;

// A counter: its growth per second, and its value.
struct Growth {
  double per_second = 0, total = 0;
};

// Of one operation by one kernel; "none": no kernel ran. Rates are per second.
struct WorkRates {
  double requests = 0, errors = 0;     // answered OK, and otherwise
  double total = 0;                    // answers since the server's start
  double tokens = 0;                   // computed
  double batches = 0, in_batches = 0;  // and the requests in them
  double compute = 0;                  // seconds of the device
  Histogram latency{}, wait{};         // of the interval: seconds of the call, and in the queue
};

struct LoadGauges {
  Gauge saturation;  // 0 to 1
  Gauge queue_depth, queued_seconds, queued_seconds_limit, oldest_seconds;
  Gauge requests, tokens, bytes;                    // in flight
  Gauge requests_limit, tokens_limit, bytes_limit;  // of them
  Gauge connections;
};

struct MemoryGauges {
  Gauge allocated, reserved, limit;    // the device's
  Gauge staging_used, staging_cached;  // the host's, for it
  Gauge resident, heap;                // the process's
  // What holds memory besides: "weights of MODEL", "activations", "messages in".
  std::map<std::string, double> others;
};

struct Rates {
  double seconds = 0;  // between the readings; 0: rates are not known
  int servers = 1;
  std::string version, device, backend;
  bool ready = false, draining = false, stalled = false, healthy = true;
  Gauge uptime;
  Gauge processor;  // seconds of processor time per second
  LoadGauges load;
  MemoryGauges memory;
  std::map<std::pair<std::string, std::string>, WorkRates> work;  // by operation and kernel
  std::map<std::string, Growth> errors;                           // by status code
  std::map<std::string, Growth> refusals;                         // by reason
  Growth deadline_misses, faults;

  // Of all work. Its latency is that of calls which came as far as a kernel: quick refusals would
  // hide how long the others take.
  WorkRates Sum() const;
};

// Whether the process has started anew in between: its counters are from zero.
bool HasRestarted(const client::MetricsPage& before, const client::MetricsPage& after);

// Between two readings that are `seconds` apart, without a restart in between. `now`, since the
// epoch, is the later one's time, for the uptime. A null `before`: there is the later one alone.
Rates RatesOf(const client::MetricsPage* before, const client::MetricsPage& after, double seconds,
              double now);

// Adds another server: counts and rates are sums, saturation and waits the greatest.
void AddTo(const Rates& server, Rates* all);

}  // namespace castor::top
