// The thread that looks at the files of an Access, from construction to destruction, and says in
// metrics and log what it found.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "engine/base/mutex.h"
#include "server/access.h"
#include "server/metrics_access.h"

namespace castor::server {

class AccessWatch {
 public:
  // Calls `on_callers` with the table of callers, here once and whenever it changes, on its own
  // thread. `access`, `metrics` and what `on_callers` uses must outlive this object.
  AccessWatch(Access& access, std::chrono::milliseconds look_every, AccessMetrics& metrics,
              std::function<void(const CallerTable&)> on_callers);
  ~AccessWatch();
  // Looks at the files at once, on its own thread.
  void LookNow();

  AccessWatch(const AccessWatch&) = delete;
  AccessWatch& operator=(const AccessWatch&) = delete;

 private:
  // One of the two: what it was refused for, so that the log says it once.
  struct Standing {
    Reloaded what;
    std::string refused_for = {};
  };
  // Whether there is something new.
  template <typename Live>
  bool Refresh(Live& live, Standing& standing);
  void ShowExpiry();
  void Run();

  Access& access_;
  const std::chrono::milliseconds look_every_;
  AccessMetrics& metrics_;
  const std::function<void(const CallerTable&)> on_callers_;

  Mutex mu_;
  CondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  bool look_now_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses everything above
};

}  // namespace castor::server
