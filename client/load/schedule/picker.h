// Which request is sent at a time that is given: its class, its payload, and what becomes of it.
#pragma once

#include <cstdint>
#include <vector>

#include "client/load/schedule/schedule.h"
#include "client/load/workload/random.h"
#include "client/load/workload/workload.h"

namespace castor::load {

// Classes by weight, payloads in turn, cancellation and verification by share. Each choice has its
// own random numbers: another share of verification leaves the other choices as they were.
class Picker {
 public:
  // Streams of the same seed differ, and begin with different payloads.
  Picker(const Workload& workload, double verify_share, uint64_t seed, uint64_t stream);

  // `at_ns` is 0.
  Planned Next();
  // The same for a class and payload that are given.
  Planned Next(uint16_t cls, uint32_t payload);

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

}  // namespace castor::load
