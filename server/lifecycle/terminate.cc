#include "server/lifecycle/terminate.h"

#include <cxxabi.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

namespace castor::server {
namespace {

constexpr size_t kMostText = 1024;

// One write, so that no other thread's line gets in between. A failure of it is ignored.
void WriteLine(std::string_view what) {
  constexpr std::string_view kPrefix = "castor-server: fatal: ";
  what = what.substr(0, std::min(what.find('\n'), kMostText));
  const auto part = [](std::string_view text) {
    return iovec{const_cast<char*>(text.data()), text.size()};
  };
  const iovec line[] = {part(kPrefix), part(what), part("\n")};
  [[maybe_unused]] const ssize_t written = ::writev(STDERR_FILENO, line, std::size(line));
}

[[noreturn]] void Terminate() {
  if (abi::__cxa_current_exception_type() == nullptr) {
    WriteLine("terminated without an exception");
    std::abort();
  }
  try {
    throw;  // the exception itself: a std::exception_ptr might allocate
  } catch (const std::bad_alloc&) {
    WriteLine("out of memory");
  } catch (const std::exception& error) {
    WriteLine(error.what());
  } catch (...) {
    WriteLine("an unknown exception");
  }
  std::abort();
}

}  // namespace

void SayWhyOnTerminate() { std::set_terminate(Terminate); }

}  // namespace castor::server
