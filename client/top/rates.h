// Rates between two readings of a server's /metrics.
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
  bool compared = false;         // false: there is no earlier reading, and no growth
  client::MetricsPage now{};     // the later reading
  client::MetricsPage growth{};  // growth per second of the series that grew
};

// The rates between two readings that are `seconds` apart. Not compared if `before` is null, or if
// the process restarted in between.
Rates RatesOf(const client::MetricsPage* before, client::MetricsPage after, double seconds);

// Adds another server's figures, or takes the maximum where a sum has no meaning, such as
// saturation.
void AddTo(const Rates& server, Rates* all);

// The family's sum, if it is there and finite.
std::optional<double> ValueOf(const client::MetricsPage& page, std::string_view name,
                              std::string_view part = "");

// A counter's growth per second, and its value.
struct Counter {
  double per_second = 0, total = 0;
};

// The family's counters by the value of `label`, without those that are zero.
std::map<std::string, Counter> CountersOf(const Rates& rates, std::string_view name,
                                          std::string_view label);

// One row's rates per second.
struct Work {
  double requests = 0, errors = 0;     // answered OK, and with an error
  bool used = false;                   // since the server's start
  double tokens = 0;                   // computed
  double batches = 0, in_batches = 0;  // batches, and the requests in them
  double compute = 0;                  // seconds of the device
  std::map<double, double> latency{};  // cumulative buckets by their bounds, in seconds

  struct Quantile {
    double seconds = 0;
    bool beyond = false;  // `seconds` is the greatest finite bound, and the value is above it
  };
  // Computed like PromQL's histogram_quantile; nullopt without values.
  std::optional<Quantile> QuantileOf(double quantile) const;
};

// By operation and model or kernel: "encode minilm", "attend vanilla"; "attend -" if unknown.
std::map<std::string, Work> WorkOf(const Rates& rates);

// Adds up the rows. The latency leaves out calls that reached no kernel: quick refusals would hide
// how long the others take.
Work SumOf(const std::map<std::string, Work>& work);

}  // namespace castor::top
