#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include "engine/base/team.h"
#include "tests/support/sanitizer.h"

namespace castor {
namespace {

TEST(CheckThreadsTest, FindsRoomForAFew) {
  EXPECT_TRUE(CheckThreads(0).ok());
  EXPECT_TRUE(CheckThreads(20).ok());
}

[[noreturn]] void ExitWithoutRoom() {
  const rlimit limit{rlim_t{200} << 20, RLIM_INFINITY};  // room for few stacks of 8 MiB
  setrlimit(RLIMIT_AS, &limit);
  const absl::Status status = CheckThreads(1000);
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::_Exit(status.ok() ? 0 : 1);
}

TEST(CheckThreadsDeathTest, SaysWhyThereIsNone) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own memory exceeds such a limit";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(ExitWithoutRoom(), testing::ExitedWithCode(1), "cannot start 1000 threads, only ");
}

}  // namespace
}  // namespace castor
