#include "server/lifecycle/start_guard.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

namespace castor::server {
namespace {

std::terminate_handler terminate_before = nullptr;
struct sigaction abort_before;

// Does not format or allocate: there may be no memory, or the heap's lock may be held.
[[noreturn]] void CannotStart(const char* why, const char* what) {
  for (const char* part : {"castor-server: cannot start: ", why, what, "\n"}) {
    if (write(STDERR_FILENO, part, strlen(part)) < 0) break;
  }
  _exit(1);
}

[[noreturn]] void OnTerminate() {
  try {
    if (const std::exception_ptr current = std::current_exception()) {
      std::rethrow_exception(current);
    }
  } catch (const std::bad_alloc&) {
    CannotStart("no memory (limits: ulimit -v, ulimit -d, the container's)", "");
  } catch (const std::system_error& error) {
    CannotStart("cannot get a thread or another resource: ", error.what());
  } catch (const std::exception& error) {
    CannotStart("unexpected: ", error.what());
  } catch (...) {
  }
  CannotStart("an unknown error", "");
}

void OnAbort(int) {
  CannotStart(
      "a library aborted, probably for lack of memory, threads or descriptors (see ulimit -a)", "");
}

}  // namespace

StartGuard::StartGuard() {
  terminate_before = std::set_terminate(OnTerminate);
  struct sigaction abort {};
  abort.sa_handler = OnAbort;
  sigaction(SIGABRT, &abort, &abort_before);
}

void StartGuard::Done() {
  if (done_) return;
  done_ = true;
  std::set_terminate(terminate_before);
  sigaction(SIGABRT, &abort_before, nullptr);
}

}  // namespace castor::server
