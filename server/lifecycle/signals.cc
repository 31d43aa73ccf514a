#include "server/lifecycle/signals.h"

#include <cxxabi.h>
#include <pthread.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "server/logging.h"

namespace castor::server {
namespace {

// The destructor wakes the watcher with this signal.
constexpr int kWakeUp = SIGUSR2;

sigset_t WatchedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int number = 1; number <= 64; ++number) {
    if ((kWatchedSignals >> (number - 1) & 1) != 0) sigaddset(&set, number);
  }
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
    if (number != SIGTERM && number != SIGINT) {
      LogInfo(number == SIGHUP ? "files are checked every second; no signal is needed"
                               : "signal ignored; SIGTERM and SIGINT drain the server",
              {{"signal", number}});
      continue;
    }
    if (drains || action_ == nullptr) std::_Exit(128 + number);
    LogInfo("signal received", {{"signal", number}});
    action_();
    drains = true;
  }
}

namespace {

constexpr size_t kMostText = 1024;

std::atomic<bool> starting = false;
struct sigaction abort_before;

// One write, so that no other thread's line gets in between. A failure of it is ignored.
[[noreturn]] void End(std::string_view what) {
  const auto part = [](std::string_view text) {
    return iovec{const_cast<char*>(text.data()), text.size()};
  };
  const iovec line[] = {part(starting ? "castor-server: cannot start: " : "castor-server: fatal: "),
                        part(what.substr(0, std::min(what.find('\n'), kMostText))), part("\n")};
  [[maybe_unused]] const ssize_t written = ::writev(STDERR_FILENO, line, std::size(line));
  if (starting) _exit(1);
  std::abort();
}

[[noreturn]] void Terminate() {
  if (abi::__cxa_current_exception_type() == nullptr) End("terminated without an exception");
  try {
    throw;  // the exception itself: a std::exception_ptr might allocate
  } catch (const std::bad_alloc&) {
    End(starting ? "no memory (limits: ulimit -v, ulimit -d, the container's)" : "out of memory");
  } catch (const std::exception& error) {
    End(error.what());
  } catch (...) {
    End("an unknown exception");
  }
}

void OnAbort(int) {
  End("a library aborted, probably for lack of memory, threads or descriptors (see ulimit -a)");
}

}  // namespace

void SayWhyOnTerminate() { std::set_terminate(Terminate); }

StartGuard::StartGuard() {
  starting = true;
  struct sigaction abort {};
  abort.sa_handler = OnAbort;
  sigaction(SIGABRT, &abort, &abort_before);
}

void StartGuard::Done() {
  if (starting.exchange(false)) sigaction(SIGABRT, &abort_before, nullptr);
}

}  // namespace castor::server
