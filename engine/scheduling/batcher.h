// Forms batches: decides when one is due and which requests travel in it.
//
// A batch always starts with the request that is first by policy, and takes further ones from its
// group, in order, as long as they fit: so it looks past incompatible requests in between, and past
// compatible ones too large for what is left, and yet nothing starves: a request is overtaken only
// by company of requests that are ahead of it anyway.
//
// Stateless but for its limits; works on a Queue that the caller has locked.
#pragma once

#include <chrono>
#include <cstdint>

#include "engine/jobs/job.h"
#include "engine/scheduling/queue.h"

namespace castor {

struct BatchLimits {
  int64_t max_tokens = 0;
  int64_t max_requests = 0;
  std::chrono::microseconds delay{0};
};

class Batcher {
 public:
  explicit Batcher(BatchLimits limits) : limits_(limits) {}

  // From when on a free device should be given the next batch: at once when one is full, else when
  // the head has waited for `delay`; TimePoint::max() when the queue is empty.
  TimePoint DueAt(const Queue& queue) const;

  // Takes the next batch out of the queue. Requests whose deadline has passed go to `expired`
  // instead; the result is empty when no other is left. Jobs are in neither place for a moment, so
  // that a failed allocation ends the process.
  JobList Form(Queue& queue, TimePoint now, JobList* expired) const noexcept;

 private:
  JobList FormFromFirstGroup(Queue& queue, TimePoint now, JobList* expired) const;

  const BatchLimits limits_;
};

inline bool Expired(const Job& job, TimePoint now) { return job.deadline && *job.deadline <= now; }

}  // namespace castor
