// A terminal whose whole screen is ours for a while.
#pragma once

#include <string>
#include <vector>

namespace castor::top {

// Takes the alternate screen, and reads keys one by one and unseen if `input` is a terminal too.
// All is put back by the destructor, and when the program crashes or is aborted. One at a time, not
// thread-safe.
class Terminal {
 public:
  Terminal(int input, int output);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Replaces what is shown. The lines must fit.
  void Draw(const std::vector<std::string>& lines) const;

  // Where keys come from; -1: there is no keyboard.
  int keyboard() const { return keyboard_; }
  // Those that were pressed; never waits.
  std::string ReadKeys();

  // Gives the terminal back, stops the process as Ctrl-Z does, and takes it again when it goes on.
  void Suspend();

  // Puts back what this process has taken. Async-signal-safe.
  static void RestoreAll();

 private:
  void Enter();

  const int output_;
  int keyboard_;
};

}  // namespace castor::top
