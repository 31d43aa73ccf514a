#include <gtest/gtest.h>
#include <signal.h>

#include <exception>
#include <new>
#include <stdexcept>

#include "server/lifecycle/signals.h"

namespace castor::server {
namespace {

template <typename Exception>
void Throw(const Exception& exception) {
  throw exception;
}

// Like a function of the engine that must not fail.
template <typename Exception>
void Fail(const Exception& exception) noexcept {
  Throw(exception);
}

TEST(TerminateDeathTest, SaysInOneLineThatMemoryIsOutAndAborts) {
  EXPECT_EXIT((SayWhyOnTerminate(), Fail(std::bad_alloc())), testing::KilledBySignal(SIGABRT),
              "^castor-server: fatal: out of memory\n$");
}

TEST(TerminateDeathTest, SaysWhatAnExceptionSays) {
  EXPECT_EXIT((SayWhyOnTerminate(), Fail(std::runtime_error("no threads left\nand more"))),
              testing::KilledBySignal(SIGABRT), "^castor-server: fatal: no threads left\n$");
  EXPECT_EXIT((SayWhyOnTerminate(), Fail(7)), testing::KilledBySignal(SIGABRT),
              "^castor-server: fatal: an unknown exception\n$");
}

TEST(TerminateDeathTest, NeedsNoException) {
  EXPECT_EXIT((SayWhyOnTerminate(), std::terminate()), testing::KilledBySignal(SIGABRT),
              "^castor-server: fatal: ");
}

}  // namespace
}  // namespace castor::server
