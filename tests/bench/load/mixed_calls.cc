#include "tests/bench/load/mixed_calls.h"

#include <cstdint>

namespace castor::bench {

MixedCall DrawCall(const std::vector<KnownProblem>& problems, const std::string& tenant,
                   std::chrono::milliseconds patience, std::mt19937_64& random) {
  const auto between = [&random](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto last = static_cast<int64_t>(problems.size()) - 1;
  MixedCall call = {.problem = &problems[static_cast<size_t>(between(0, last))]};
  call.priority = static_cast<size_t>(between(0, 2));
  call.settings.tenant = tenant;
  const int64_t fate = between(0, 9);
  if (fate == 0) patience = std::chrono::milliseconds(between(1, 50));
  if (fate == 1) call.cancel_after = std::chrono::microseconds(between(0, 50'000));
  call.settings.deadline = Clock::now() + patience;
  return call;
}

}  // namespace castor::bench
