// SIGTERM, SIGINT and SIGHUP, taken by a thread of their own: nothing runs inside a signal handler.
//
// The first SIGTERM or SIGINT asks for a drain. A second one ends the process at once with 128 +
// its number, as does a first one that comes before anyone can drain. SIGHUP asks to read files
// again, as is the custom; where nobody can, it does nothing. SIGPIPE is ignored.
//
// main.cc blocks them before anything else: the kernel drops signals to a container's first process
// that are neither blocked nor handled, and a blocked one waits until the watcher takes it.
#pragma once

#include <functional>
#include <thread>

#include "engine/base/mutex.h"

namespace castor::server {

// For commands that no watcher serves: signals do what they do by default, also those that wait.
void UnblockSignals();

class SignalWatcher {
 public:
  // Construct it before any other thread exists, so that they all have the signals blocked. One per
  // process.
  SignalWatcher();
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  // Sets what the first SIGTERM or SIGINT does, and what each SIGHUP, on the watcher's thread. With
  // nothing set, or nullptr, the former ends the process, and the latter does nothing. When this
  // returns, the previous actions are no longer running.
  void On(std::function<void()> stop, std::function<void()> reread);

 private:
  void Watch();

  Mutex mu_;  // held while an action runs
  std::function<void()> stop_ ABSL_GUARDED_BY(mu_);
  std::function<void()> reread_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace castor::server
