// What the device can take now: anything, the next batch behind one that runs, or at a checkpoint
// of a run what may pass it.
#pragma once

#include <cstdint>
#include <limits>

#include "engine/jobs/active_runs.h"
#include "engine/jobs/job.h"

namespace castor {

struct Opening {
  enum class Beside {
    kNothing,  // the first request is taken whatever it needs of the memory
    kLaunch,   // one that runs: the first is taken once it fits, and nobody before it
    kHeldUp,   // those that it passes: the first of those that fit is taken
  };
  Beside beside = Beside::kNothing;

  ActiveRuns::Passage passage = {};
  double pace = 1;  // how many times as long as predicted runs take now
  int64_t free_bytes = std::numeric_limits<int64_t>::max();  // of the device's memory

  // The longest batch that may begin with this job, at whose end its tenant's virtual time is
  // `end`.
  double MostUs(const Job& job, double end) const { return passage.MostUs(job.tenant, end); }

  // Whether there is memory for a batch that begins with this job.
  bool HasMemoryFor(const Job& job) const {
    return beside == Beside::kNothing || job.memory.bytes() <= free_bytes;
  }
};

}  // namespace castor
