// The server's load, as callers see it: an ORCA report in each answer's trailers. Weighted
// balancers (gRPC's weighted_round_robin, Envoy's) choose replicas by it.
//
// Such a balancer's weight is requests per second by utilization, an estimate of what the replica
// can take; the share of failed ones is added to utilization. So utilization must rise in
// proportion to the load. The share of the budgets in use does not: it is close to 0 until a
// replica is full. The device's busy share does, up to 1, and says nothing of a backlog, by which a
// replica should get less until it has caught up. So it is the busy share and, on top, the waiting
// work in units of kCatchUp.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "engine/base/mutex.h"
#include "engine/engine.h"

namespace castor::server {

inline constexpr char kLoadReportTrailer[] = "endpoint-load-metrics-bin";

// The engine's counts since it started, and what waits now.
struct LoadSample {
  double busy_seconds = 0;    // of the device, on batches that have ended
  double queued_seconds = 0;  // predicted time of what waits
  double memory_share = 0;
  uint64_t answered = 0;  // requests, OK
  uint64_t failed = 0;    // for want of room or time, or by a fault; not for the request's own sake
};
LoadSample LoadOf(const EngineStats& stats);

// Rates from samples. Not thread-safe.
class LoadMeter {
 public:
  using Seconds = std::chrono::duration<double>;

  // Older load counts e times less for each such time.
  static constexpr Seconds kMemory{1.0};

  // With so much waiting, a replica at its capacity is given half of it. Weights follow a report by
  // about a second; a time several times that keeps the balance from swinging.
  static constexpr Seconds kCatchUp{5.0};

  LoadMeter(const LoadSample& first, TimePoint now) : last_(first), last_look_(now) {}

  void Update(const LoadSample& sample, TimePoint now);
  std::string Report() const;  // a serialized xds.data.orca.v3.OrcaLoadReport

 private:
  LoadSample last_;
  TimePoint last_look_;
  double unspent_ = 0;  // seconds of batches longer than the looks in which they ended
  double busy_ = 0;     // share
  double answered_ = 0;
  double failed_ = 0;  // per second
};

// The report, made anew when kRenew has passed since the last one. Thread-safe.
class LoadReports {
 public:
  static constexpr std::chrono::milliseconds kRenew{100};

  // `sample` is called by one thread at a time, on those that call Trailer, which wait for it.
  LoadReports(std::function<LoadSample()> sample, TimePoint now);

  // The trailer's value.
  std::string Trailer(TimePoint now);

 private:
  const std::function<LoadSample()> sample_;

  Mutex mu_;
  TimePoint renew_at_ ABSL_GUARDED_BY(mu_);
  LoadMeter meter_ ABSL_GUARDED_BY(mu_);
  std::string report_ ABSL_GUARDED_BY(mu_);
};

}  // namespace castor::server
