// What two readings of a server's /metrics say of the time between them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "client/metrics/page.h"

namespace castor::top {

// The metrics of one server, or of several added up.
struct Rates {
  int servers = 1;
  bool compared = false;         // there was an earlier reading; without it nothing has grown
  client::MetricsPage now{};     // the later reading
  client::MetricsPage growth{};  // of what has grown, by how much in a second
};

// Between two readings that are `seconds` apart. Of a process that started anew in between, or
// without a `before`, there is the later one alone.
Rates RatesOf(const client::MetricsPage* before, client::MetricsPage after, double seconds);

// Adds another server: sums, and the greatest of what cannot be added, such as saturation.
void AddTo(const Rates& server, Rates* all);

// The family's sum, if it is there and finite.
std::optional<double> ValueOf(const client::MetricsPage& page, std::string_view name,
                              std::string_view part = "");

// A counter: its growth in a second, and its value.
struct Counter {
  double per_second = 0, total = 0;
};

// The family's counters by the value of `label`, without those that are zero.
std::map<std::string, Counter> CountersOf(const Rates& rates, std::string_view name,
                                          std::string_view label);

// One row's rates per second.
struct Work {
  double requests = 0, errors = 0;     // answered OK, and otherwise
  bool used = false;                   // since the server's start
  double tokens = 0;                   // computed
  double batches = 0, in_batches = 0;  // and the requests in them
  double compute = 0;                  // seconds of the device
  std::map<double, double> latency{};  // cumulative buckets by their bounds, in seconds

  struct Quantile {
    double seconds = 0;
    bool beyond = false;  // the value is beyond the greatest finite bound, which this is
  };
  // As PromQL's histogram_quantile has it; nullopt of no values.
  std::optional<Quantile> QuantileOf(double quantile) const;
};

// By operation, and model or kernel: "encode minilm", "attend vanilla"; "attend -": it is not
// known.
std::map<std::string, Work> WorkOf(const Rates& rates);

// The latency is that of calls which reached a kernel: quick refusals would hide how long the
// others take.
Work SumOf(const std::map<std::string, Work>& work);

}  // namespace castor::top
