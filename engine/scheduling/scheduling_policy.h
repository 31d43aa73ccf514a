// The order in which requests are served: priority, then arrival. It is decided here and nowhere
// else; the queue, the batcher and the tokenizer pool only compare ranks.
//
// A rank is fixed when a request arrives. Other policies can keep to that: a deadline would be one
// more field between the two of Rank; ageing, an arrival time minus a head start per priority
// level, so that old requests overtake without a clock; fair shares of several callers, a virtual
// start time.
//
// Owned by Scheduler and guarded by its lock.
#pragma once

#include "engine/jobs/job.h"
#include "engine/jobs/rank.h"

namespace castor {

class SchedulingPolicy {
 public:
  // The rank of a job that arrives now. Requires that its ticket is set.
  Rank RankArrival(const Job& job) const {
    return {static_cast<int>(Priority::kHigh) - static_cast<int>(job.priority), job.ticket};
  }
};

}  // namespace castor
