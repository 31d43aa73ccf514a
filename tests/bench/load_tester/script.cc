#include "tests/bench/load_tester/script.h"

#include <algorithm>

namespace castor::bench {
namespace {

// SplitMix64's output function: neighbouring numbers come out unrelated.
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Answer Script::Draw(uint64_t number) const {
  const double drawn = static_cast<double>(Mix(options_.seed ^ Mix(number)) >> 11) * 0x1p-53;
  double below = options_.refuse_share;
  if (drawn < below) return Answer::kRefused;
  if (drawn < (below += options_.wrong_share)) return Answer::kWrong;
  if (drawn < (below += options_.silent_share)) return Answer::kNone;
  return Answer::kGood;
}

int64_t Script::AfterStall(int64_t at_ns) const {
  if (options_.stall_ns == 0 || at_ns < options_.stall_every_ns) return at_ns;
  const int64_t begin = at_ns / options_.stall_every_ns * options_.stall_every_ns;
  return std::max(at_ns, begin + options_.stall_ns);
}

Departure Script::Next(int64_t arrival_ns) {
  const Answer answer = Draw(number_++);
  int64_t ready_ns = arrival_ns;
  if (answer == Answer::kGood || answer == Answer::kWrong) {
    if (options_.service == ScriptOptions::Service::kQueue) {
      ready_ns = free_at_ns_ = std::max(arrival_ns, free_at_ns_) + options_.service_ns;
    } else {
      ready_ns += options_.service_ns;
    }
  }
  return {.at_ns = AfterStall(ready_ns), .answer = answer};
}

}  // namespace castor::bench
