// An operator new that fails on request and counts live allocations. Only for programs in which
// every allocation goes through it: failing_new.cc replaces the operators.
#pragma once

#include <cstddef>
#include <cstdint>

namespace castor {

// Which allocations fail, on any thread.
struct Failing {
  int64_t after = 0;       // the number that succeed first
  bool permanent = false;  // all later ones fail too, not just one
  size_t at_least = 0;     // bytes; smaller ones always succeed and are not counted
};
void FailAllocations(const Failing& failing);

// Allocations succeed again. Returns whether any has failed.
bool StopFailing();

int64_t LiveAllocations();

}  // namespace castor
