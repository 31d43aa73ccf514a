// The plan of a run: which request is sent when. The seed fixes it before the run.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "client/load/workload/workload.h"

namespace castor::load {

// The draws do not use the standard library's distributions, which differ between versions: equal
// seeds must give equal schedules.
using Random = std::mt19937_64;

// A number in [0, bound), bound > 0.
inline uint64_t Below(uint64_t bound, Random& random) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(random()) * bound) >> 64);
}

// In (0, 1]: its logarithm is finite.
inline double Uniform(Random& random) {
  return (static_cast<double>(random() >> 11) + 1) * 0x1p-53;
}

double Exponential(Random& random);  // mean 1
double Normal(Random& random);       // mean 0, variance 1

// Mixes numbers into one seed.
uint64_t MixSeed(uint64_t seed, uint64_t more);

inline constexpr int64_t kMaxPlanned = int64_t{1} << 27;  // requests of one plan

// One request of the plan. 24 bytes: an hour at 5,000/s takes 432 MB.
struct Planned {
  int64_t at_ns = 0;             // from the begin; negative during the warm-up
  int64_t cancel_after_ns = -1;  // from `at_ns`; -1: it is not cancelled
  uint32_t payload = 0;          // of its class
  uint16_t cls = 0;              // index into Workload::classes
  bool verify = false;           // compare the answer with the reference
};

// Draws a length, at least 1.
int64_t Draw(const Length& length, Random& random);

// Chooses requests: classes by weight, payloads in turn, cancellation and verification by share.
// Each choice has its own random numbers, so a change of the share to verify does not change the
// other choices. Streams of the same seed differ, and begin with different payloads.
class Picker {
 public:
  Picker(const Workload& workload, double verify_share, uint64_t stream);

  Planned Next();  // its at_ns is 0

 private:
  struct Class {
    double weight_below = 0;  // sum of the weights up to this class
    double cancel_share = 0;
    int64_t cancel_after_ns = 0;
    uint32_t payloads = 1, next = 0;
  };

  std::vector<Class> classes_;
  double verify_share_;
  Random class_random_, cancel_random_, verify_random_;
};

// The plan of an open loop, in order of time. Equal arguments give equal schedules; REQUIRES an
// OpenLoop. Throws std::runtime_error if the plan exceeds kMaxPlanned requests.
std::vector<Planned> MakeSchedule(const Workload& workload, double verify_share);

}  // namespace castor::load
