// SIGTERM, SIGINT and SIGHUP, taken by a thread of their own: nothing runs inside a signal handler.
//
// The first SIGTERM or SIGINT asks for a drain. A second one ends the process at once with 128 +
// its number, as does a first one that comes before anyone can drain. Others that would end the
// process are logged and end nothing: SIGHUP, for instance, since the files that may change are
// looked at every second. SIGPIPE and SIGXFSZ are ignored. What stops the process, dumps its core
// on demand (SIGQUIT) or reports its own fault does what it does by default.
//
// main.cc blocks them before anything else: the kernel drops signals to a container's first process
// that are neither blocked nor handled, and a blocked one waits until the watcher takes it.
#pragma once

#include <signal.h>

#include <cstdint>
#include <functional>
#include <thread>

#include "engine/base/mutex.h"

namespace castor::server {

// The signals that the watcher takes, all real-time signals included, as a kernel's mask.
inline constexpr uint64_t kWatchedSignals = [] {
  uint64_t mask = ~uint64_t{0} << 33;  // from 34 on; the C library has 32 and 33
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF,
                           SIGIO, SIGPWR, SIGSTKFLT, SIGXCPU}) {
    mask |= uint64_t{1} << (number - 1);
  }
  return mask;
}();

// For commands that no watcher serves: signals do what they do by default, also those that wait.
void UnblockSignals();

class SignalWatcher {
 public:
  // Blocks the signals in this thread and in all that it starts from now on: construct it before
  // any other thread exists. One per process.
  SignalWatcher();
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

  // Sets what the first signal does, on the watcher's thread. With nothing set, or nullptr, it ends
  // the process. When this returns, the previous action is no longer running.
  void OnFirst(std::function<void()> action);

 private:
  void Watch();

  Mutex mu_;  // held while the action runs
  std::function<void()> action_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// Makes std::terminate write one line to standard error and abort. Exceptions that must not be
// caught end there, such as a lack of memory for the engine's bookkeeping (engine/DESIGN.md, "When
// things fail"). The line is written without allocating: there may be no memory, or the heap's lock
// may be held. Called first thing in main.
void SayWhyOnTerminate();

// Makes a failed start end with one line and exit code 1, however a library reacts to a lack of
// memory, threads or descriptors: many throw exceptions that no caller catches, or call abort().
//
// Affects the whole process while it lives: one at a time, constructed by main after
// SayWhyOnTerminate and before other threads start. Nothing is unwound or destroyed on exit, since
// a hanging thread could block that.
class StartGuard {
 public:
  StartGuard();
  ~StartGuard() { Done(); }
  StartGuard(const StartGuard&) = delete;
  StartGuard& operator=(const StartGuard&) = delete;

  // Call when the server runs: from now on abort() aborts, with a core dump. May be called again.
  void Done();
};

}  // namespace castor::server
