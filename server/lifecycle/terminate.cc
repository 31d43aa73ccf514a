#include "server/lifecycle/terminate.h"

#include <cxxabi.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

namespace castor::server {
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
