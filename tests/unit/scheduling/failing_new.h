// operator new that fails when a test says so, and counts what is alive. For programs whose every
// allocation goes through it: failing_new.cc replaces the operators.
#pragma once

#include <cstddef>
#include <cstdint>

namespace castor {

// Which allocations fail, on whatever thread.
struct Failing {
  int64_t after = 0;      // so many that succeed
  bool for_good = false;  // not one alone, but all that follow
  size_t at_least = 0;    // bytes; smaller ones always succeed and are not counted
};
void FailAllocations(const Failing& failing);

// Ends that. Returns whether an allocation has failed.
bool StopFailing();

int64_t LiveAllocations();

}  // namespace castor
