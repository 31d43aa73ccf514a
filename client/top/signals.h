// The signals of a program that owns a terminal's screen.
#pragma once

#include <atomic>
#include <csignal>
#include <vector>

namespace castor::top {

// One at a time; the signals' former handling comes back in the end. A second signal that asks to
// end does so at once, and leaves the terminal as it should be.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Can be read when there is something new, after which Clear() must be called.
  int descriptor() const { return event_; }
  void Clear() const;

  // The signal that asked to end (SIGINT, SIGTERM, SIGHUP, SIGQUIT), or 0.
  static int Ending();
  // Whether the shell's Ctrl-Z was pressed since the last time.
  static bool TakeStop();

 private:
  struct Former {
    int number = 0;
    struct sigaction action {};
  };
  const int event_;
  std::vector<Former> former_;
};

}  // namespace castor::top
