#include <semaphore.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "client/load/commands/command.h"

namespace castor::load {
namespace {

std::atomic<bool> stop_requested = false;
sem_t stop_signal;                                      // posted once
static_assert(std::atomic<bool>::is_always_lock_free);  // so that the handler may set it

void OnSignal(int number) {
  if (stop_requested.exchange(true)) std::_Exit(128 + number);
  sem_post(&stop_signal);
}

}  // namespace

const std::atomic<bool>& StopRequested() { return stop_requested; }

void WatchForStop() {
  sem_init(&stop_signal, /*pshared=*/0, 0);
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void AwaitStop() {
  while (sem_wait(&stop_signal) != 0 && errno == EINTR) {
  }
}

}  // namespace castor::load
