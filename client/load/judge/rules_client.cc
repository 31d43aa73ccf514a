// Rules on the client: figures of a client that could not keep up are about the client.

#include <algorithm>

#include "client/cli/report.h"
#include "client/load/judge/rules.h"

namespace castor::load {
namespace {

constexpr char kRemedy[] = "lower --rate or add --workers";

}  // namespace

Finding CheckClientLag(const RunData& run, const Rules& rules) {
  const Cell total = run.Total();
  const auto lag = static_cast<double>(total.lag.ValueAt(0.99));
  const auto median = static_cast<double>(total.intended.ValueAt(0.5));
  const double most = std::max(static_cast<double>(rules.max_lag_ns), rules.max_lag_share * median);
  const std::string text = "p99 of the client's lag is " + FoundTime(lag);
  if (lag <= most) return {"client-lag", true, text + ", and may be " + FoundTime(most)};
  return {"client-lag", false,
          text + ", more than " + FoundTime(most) + " (the greater of " +
              FoundTime(static_cast<double>(rules.max_lag_ns)) + " and " +
              FoundShare(rules.max_lag_share) + " of the median latency): the client sent late; " +
              kRemedy};
}

Finding CheckClientCpu(const RunData& run, const Rules& rules) {
  double busiest = 0, calibrated = 0;
  bool all_calibrated = !run.clients.empty();
  for (const ClientLoad& client : run.clients) {
    busiest = std::max(busiest, client.busiest_thread);
    calibrated += client.calibrated_rate;
    all_calibrated = all_calibrated && client.calibrated_rate > 0;
  }
  const std::string text = "the client's busiest thread took " + FoundShare(busiest) + " of a core";
  if (busiest > rules.max_thread_share) {
    return {"client-cpu", false,
            text + ", more than " + FoundShare(rules.max_thread_share) +
                ": the client was the limit; " + kRemedy};
  }
  if (all_calibrated && run.asked_rate > calibrated) {
    return {"client-cpu", false,
            cli::FormatReal(run.asked_rate, "%.4g") + " requests/s were asked for, and this " +
                "client can send " + cli::FormatReal(calibrated, "%.4g") + "/s by its " +
                "calibration: " + kRemedy};
  }
  return {"client-cpu", true, text};
}

Finding CheckClientDropped(const RunData& run, const Rules& rules) {
  const Cell total = run.Total();
  const int64_t dropped = total.of(Outcome::kDropped);
  if (dropped == 0) return {"client-dropped", true, "every planned request was sent"};
  const double share = static_cast<double>(dropped) / static_cast<double>(total.planned());
  const std::string text = std::to_string(dropped) + " requests (" + FoundShare(share) +
                           " of those planned) were not sent, since the cap on requests in " +
                           "flight was reached";
  if (share <= rules.max_dropped_share) {
    return {"client-dropped", true, text + "; " + FoundShare(rules.max_dropped_share) + " may be"};
  }
  return {"client-dropped", false,
          text +
              ": latencies are those of less load than was planned; lower --rate or raise the "
              "cap (max_in_flight)"};
}

}  // namespace castor::load
