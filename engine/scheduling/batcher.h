// Forms batches: decides which requests travel together.
//
// A batch starts with the head of the first group that is due (queue.h), and takes further requests
// of its group, in order, as long as they fit. So it looks past incompatible requests in between,
// and past compatible ones too large for what is left. Nothing starves: of the requests that are
// due, one is overtaken only by company of those that are ahead of it anyway.
//
// Works on a Queue that the caller has locked.
#pragma once

#include "engine/base/time.h"
#include "engine/jobs/job.h"
#include "engine/scheduling/queue.h"

namespace castor {

// Takes the next batch out of the queue. Requests whose deadline has passed go to `expired`
// instead; the result is empty when nothing else is due. Jobs are in neither place for a moment, so
// that a failed allocation ends the process.
JobList FormBatch(Queue& queue, TimePoint now, JobList* expired) noexcept;

inline bool Expired(const Job& job, TimePoint now) { return job.deadline && *job.deadline <= now; }

}  // namespace castor
