// When each request is sent, and which: fixed by the seed before the run.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "client/load/workload/workload.h"

namespace castor::load {

class Picker;

inline constexpr int64_t kMaxPlanned = int64_t{1} << 27;  // requests of one plan

// One request of the plan. 24 bytes: an hour at 5,000/s takes 432 MB.
struct Planned {
  int64_t at_ns = 0;             // from the begin; negative while warming up
  int64_t cancel_after_ns = -1;  // from `at_ns`; -1: it is not cancelled
  uint32_t payload = 0;          // of its class
  uint16_t cls = 0;              // index into Workload::classes
  bool verify = false;           // compare the answer, see verify/
};

// In order of `at_ns`. For a closed loop the order alone matters: `at_ns` is 0.
using Schedule = std::vector<Planned>;

// The plan of an open loop, or of a replay that PrepareReplay (replay.h) has given its classes.
// `verify_share` of the requests, 0..1, are to be verified. Deterministic: equal arguments give
// equal schedules, on every machine. Throws std::runtime_error (cli::UsageError is one) when a
// trace cannot be read, or when the plan would not fit into memory (kMaxPlanned).
Schedule MakeSchedule(const Workload& workload, double verify_share);

// The next request of a closed loop, without end: classes by weight, payloads in turn. Each stream
// has its own random numbers. Not thread-safe.
class EndlessSchedule {
 public:
  EndlessSchedule(const Workload& workload, double verify_share, uint64_t stream);
  EndlessSchedule(EndlessSchedule&&) noexcept;
  EndlessSchedule& operator=(EndlessSchedule&&) noexcept;
  ~EndlessSchedule();

  Planned Next();

 private:
  std::unique_ptr<Picker> picker_;
};

}  // namespace castor::load
