// What the device can take now: anything, or at a checkpoint of a run what may pass it.
#pragma once

#include "engine/jobs/active_runs.h"
#include "engine/jobs/job.h"

namespace castor {

struct Opening {
  ActiveRuns::Passage passage = {};
  double pace = 1;  // how many times as long as predicted runs take now

  // The longest batch that may begin with this job, at whose end its tenant's virtual time is
  // `end`.
  double MostUs(const Job& job, double end) const { return passage.MostUs(job.tenant, end); }
};

}  // namespace castor
