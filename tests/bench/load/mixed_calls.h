// Traffic of every kind: who calls, for what, how urgently, and who gives up.
#pragma once

#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "tests/bench/load/caller.h"
#include "tests/bench/load/known_answers.h"

namespace castor::bench {

// A call to be made.
struct MixedCall {
  const KnownProblem* problem = nullptr;
  size_t priority = 1;  // which of the problem's requests
  CallSettings settings{};
  Clock::duration cancel_after = Clock::duration::max();  // max: never
};

// With a deadline of `patience` from now. But one in ten has hardly any time, and one in ten is
// cancelled.
MixedCall DrawCall(const std::vector<KnownProblem>& problems, const std::string& tenant,
                   std::chrono::milliseconds patience, std::mt19937_64& random);

}  // namespace castor::bench
