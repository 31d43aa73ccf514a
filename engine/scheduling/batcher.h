// Forms batches: decides which requests run together.
//
// A batch starts with the head of the first group that is due (queue.h), and takes further requests
// of that group, in order, if they fit. So it skips incompatible requests in between, and
// compatible ones too large for the room left. Nothing starves: a due request is overtaken only by
// requests that join the batch of one ahead of it.
//
// Works on a Queue that the caller has locked.
#pragma once

#include "engine/base/time.h"
#include "engine/jobs/job.h"
#include "engine/scheduling/queue.h"

namespace castor {

// Takes the next batch out of the queue. Requests whose deadline has passed go to `expired`
// instead; the result is empty when nothing else is due. For a moment a job is in neither place, so
// a failed allocation ends the process.
JobList FormBatch(Queue& queue, TimePoint now, JobList* expired) noexcept;

inline bool Expired(const Job& job, TimePoint now) { return job.deadline && *job.deadline <= now; }

}  // namespace castor
