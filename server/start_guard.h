// What cannot be started ends with one line and exit code 1, however a library takes the lack of
// memory, threads or descriptors: many throw where nobody catches, or call abort().
#pragma once

namespace castor::server {

// Holds for the whole process while it lives: one at a time, made by main before other threads.
// Nothing is unwound or destroyed on the way out, since threads that hang may be in the way.
class StartGuard {
 public:
  StartGuard();
  ~StartGuard() { Done(); }
  StartGuard(const StartGuard&) = delete;
  StartGuard& operator=(const StartGuard&) = delete;

  // The server runs: from now on an abort() is one, with a core dump. Again is harmless.
  void Done();

 private:
  bool done_ = false;
};

}  // namespace castor::server
