// The last line of a castor-server that cannot start, or cannot go on: after an exception that
// nobody may catch, such as a lack of memory for the engine's bookkeeping (engine/DESIGN.md, "When
// things fail"). Written without allocating: there may be no memory, or the heap's lock may be
// held.
#pragma once

namespace castor::server {

// Makes std::terminate write one line to standard error and abort, so that whoever runs the process
// sees the failure. Called first thing in main.
void SayWhyOnTerminate();

// Makes a failed start end with one line and exit code 1, however a library reacts to a lack of
// memory, threads or descriptors: many throw where nobody catches, or call abort().
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
