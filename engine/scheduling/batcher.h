// Forms batches: decides which requests run together.
//
// A batch starts with the first request, in the order of service, whose group is due (queue.h).
// Then it takes company: further requests of that group, by rank. So it skips incompatible requests
// in between, and compatible ones that are too large for the room left, in tokens or in the
// device's memory. Company may overtake others, so it joins only as long as
//
// - the batch stays short: what a batch pays once, shared by more requests than that, is little;
// - its tenant would have its turn before the first request's tenant has another;
// - nobody in the batch is expected to miss a deadline because of it.
//
// Works on a Queue that the caller has locked.
#pragma once

#include "engine/base/time.h"
#include "engine/jobs/job.h"
#include "engine/scheduling/queue.h"

namespace castor {

// Takes the next batch out of the queue. Requests whose deadline has passed, or will before they
// could be answered, go to `expired` instead; the result is empty when nothing else is due. For a
// moment a job is in neither place, so a failed allocation ends the process.
JobList FormBatch(Queue& queue, TimePoint now, JobList* expired,
                  const Opening& opening = {}) noexcept;

inline bool Expired(const Job& job, TimePoint now) { return job.deadline && *job.deadline <= now; }

}  // namespace castor
