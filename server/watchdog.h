// Watches the engine's progress. An engine that has work at hand and makes no progress for too long
// hangs, and the process should be restarted.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "engine/base/mutex.h"
#include "engine/engine.h"

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
  bool Look(const Progress& progress, TimePoint now);

 private:
  const Duration limit_;
  const Duration most_per_look_;
  Progress last_;
  TimePoint last_look_ = TimePoint::min();
  Duration without_progress_{0};
};

// A thread that takes samples, from construction to destruction.
class Watchdog {
 public:
  // `changed` is called on that thread, with true when the engine hangs, and with false if it goes
  // on after all. `engine` must outlive this object; `limit` is positive.
  Watchdog(const Engine& engine, std::chrono::milliseconds limit,
           std::function<void(bool stalled)> changed);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Run(std::chrono::milliseconds limit);

  const Engine& engine_;
  const std::function<void(bool)> changed_;

  Mutex mu_;
  CondVar stop_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;

  std::thread thread_;  // last: uses everything above
};

}  // namespace castor::server
