// What tests change when the build has a sanitizer. They do fewer repetitions, since it makes a
// program several times slower; they wait longer; and they do not check the process's size, most of
// which is then the sanitizer's own. Nothing else may depend on it: a test that is wrong under a
// sanitizer is wrong.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdio>

#include "absl/base/config.h"

namespace castor {

#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// How many of `count` repetitions to run: a tenth under a sanitizer.
constexpr int Scaled(int count) { return kSanitized ? (count + 9) / 10 : count; }

// How long to wait for an event that is bound to come.
constexpr std::chrono::milliseconds Patience(std::chrono::milliseconds usual) {
  return kSanitized ? 4 * usual : usual;
}

// Expects a process to have grown by less than `limit` bytes.
inline void ExpectGrowthBelow(int64_t limit, int64_t before, int64_t after) {
  if (kSanitized) {
    std::printf("the process grew by %lld bytes, not judged: a sanitizer's shadow and quarantine\n",
                static_cast<long long>(after - before));
    return;
  }
  EXPECT_LT(after - before, limit);
}

}  // namespace castor
