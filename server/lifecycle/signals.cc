#include "server/lifecycle/signals.h"

#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <utility>

#include "server/logging.h"

namespace castor::server {
namespace {

// The destructor wakes the watcher with this signal; it has no other meaning.
constexpr int kWakeUp = SIGUSR2;

sigset_t WatchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  sigaddset(&set, kWakeUp);
  return set;
}

}  // namespace

void UnblockSignals() {
  const sigset_t set = WatchedSignals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

SignalWatcher::SignalWatcher() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // of a write to shared memory beyond the limit on file sizes
  const sigset_t set = WatchedSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { Watch(); });
}

SignalWatcher::~SignalWatcher() {
  {
    MutexLock lock(mu_);
    stopping_ = true;
  }
  pthread_kill(thread_.native_handle(), kWakeUp);
  thread_.join();
}

void SignalWatcher::OnFirst(std::function<void()> action) {
  MutexLock lock(mu_);
  action_ = std::move(action);
}

void SignalWatcher::Watch() {
  const sigset_t set = WatchedSignals();
  for (bool drains = false;;) {
    int number = 0;
    if (sigwait(&set, &number) != 0) continue;
    MutexLock lock(mu_);
    if (stopping_) return;
    if (number == kWakeUp) continue;
    if (number == SIGHUP) {
      LogInfo("files are checked every second; no signal is needed", {{"signal", number}});
      continue;
    }
    if (drains || action_ == nullptr) std::_Exit(128 + number);
    LogInfo("signal received", {{"signal", number}});
    action_();
    drains = true;
  }
}

}  // namespace castor::server
