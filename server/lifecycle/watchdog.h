// Watches the engine's progress. An engine that has work and makes no progress for too long hangs,
// and the process should be restarted.
#pragma once

#include <chrono>
#include <functional>

#include "engine/base/clock.h"
#include "engine/engine.h"
#include "server/lifecycle/periodic.h"

namespace castor::server {

// Decides whether the engine hangs, from samples of its progress. Not thread-safe.
class StallMeter {
 public:
  using Duration = std::chrono::steady_clock::duration;

  // A stall is `limit` without progress. A sample counts for `most_per_look` at most: if it comes
  // late, the whole process was stopped, and the engine with it.
  StallMeter(Duration limit, Duration most_per_look)
      : limit_(limit), most_per_look_(most_per_look) {}

  // Whether the engine hangs, as of this sample.
  bool Update(const Progress& progress, TimePoint now);

 private:
  const Duration limit_;
  const Duration most_per_look_;
  Progress last_;
  TimePoint last_look_ = TimePoint::min();
  Duration without_progress_{0};
};

// Takes samples, from construction to destruction.
class Watchdog {
 public:
  // `changed` is called on the thread of `periodic`, with true when the engine hangs, and with
  // false if it goes on after all. `engine` must outlive this object; `limit` is positive.
  Watchdog(Periodic& periodic, const Engine& engine, std::chrono::milliseconds limit,
           std::function<void(bool stalled)> changed);

 private:
  void Check();

  const Engine& engine_;
  const std::function<void(bool)> changed_;
  const std::chrono::milliseconds between_;
  StallMeter meter_;
  bool stalled_ = false;
  const Periodic::Task task_;  // last: uses everything above
};

}  // namespace castor::server
