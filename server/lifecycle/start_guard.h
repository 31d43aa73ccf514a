// Makes a failed start end with one line and exit code 1, however a library reacts to a lack of
// memory, threads or descriptors: many throw where nobody catches, or call abort().
#pragma once

namespace castor::server {

// Affects the whole process while it lives: one at a time, constructed by main before other threads
// start. Nothing is unwound or destroyed on exit, since a hanging thread could block that.
class StartGuard {
 public:
  StartGuard();
  ~StartGuard() { Done(); }
  StartGuard(const StartGuard&) = delete;
  StartGuard& operator=(const StartGuard&) = delete;

  // Call when the server runs: from now on abort() aborts, with a core dump. May be called again.
  void Done();

 private:
  bool done_ = false;
};

}  // namespace castor::server
