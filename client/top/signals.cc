#include "client/top/signals.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "client/top/terminal.h"

namespace castor::top {
namespace {

std::atomic<int> ending = 0, event = -1;
std::atomic<bool> stop = false;
static_assert(std::atomic<int>::is_always_lock_free);  // so that the handlers may use them

void Wake() {
  const uint64_t one = 1;
  (void)!write(event, &one, sizeof(one));
}

void OnEnding(int number) {
  const int error = errno;
  if (ending.exchange(number) != 0) {
    Terminal::RestoreAll();
    signal(number, SIG_DFL);
    raise(number);  // takes effect when this returns
  }
  Wake();
  errno = error;
}

void OnResize(int) {
  const int error = errno;
  Wake();
  errno = error;
}

void OnStop(int) {
  const int error = errno;
  stop = true;
  Wake();
  errno = error;
}

}  // namespace

Signals::Signals() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  ending = 0;
  stop = false;
  event = event_;
  const auto handle = [this](int number, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;  // without SA_RESTART: a write to a stopped terminal ends
    Former former{.number = number};
    sigaction(number, nullptr, &former.action);
    if (former.action.sa_handler == SIG_IGN) return;  // as nohup wants it
    sigaction(number, &action, nullptr);
    former_.push_back(former);
  };
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) handle(number, OnEnding);
  handle(SIGWINCH, OnResize);
  handle(SIGTSTP, OnStop);
}

Signals::~Signals() {
  for (const Former& former : former_) sigaction(former.number, &former.action, nullptr);
  event = -1;
  close(event_);
}

void Signals::Clear() const {
  uint64_t count = 0;
  (void)!read(event_, &count, sizeof(count));
}

int Signals::Ending() { return ending; }

bool Signals::TakeStop() { return stop.exchange(false); }

}  // namespace castor::top
