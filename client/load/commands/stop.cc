#include <csignal>
#include <cstdlib>

#include "client/load/commands/command.h"

namespace castor::load {
namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // so that the handler may set it

void OnSignal(int number) {
  if (stop_requested.exchange(true)) std::_Exit(128 + number);
}

}  // namespace

const std::atomic<bool>& StopRequested() { return stop_requested; }

void WatchForStop() {
  struct sigaction action {};
  action.sa_handler = OnSignal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace castor::load
