#include "engine/scheduling/batcher.h"

#include <vector>

namespace castor {

TimePoint Batcher::DueAt(const Queue& queue) const {
  if (queue.empty()) return TimePoint::max();
  const Queue::Group& group = queue.FirstGroup();
  const bool full = group.tokens >= limits_.max_tokens ||
                    static_cast<int64_t>(group.jobs.size()) >= limits_.max_requests;
  if (full || limits_.delay.count() == 0) return TimePoint::min();
  return group.head().queued + limits_.delay;
}

JobList Batcher::Form(Queue& queue, TimePoint now, JobList* expired) const noexcept {
  // A group can turn out to hold expired requests only.
  while (!queue.empty()) {
    JobList batch = FormFromFirstGroup(queue, now, expired);
    if (!batch.empty()) return batch;
  }
  return {};
}

JobList Batcher::FormFromFirstGroup(Queue& queue, TimePoint now, JobList* expired) const {
  // Chosen first, taken afterwards: taking the last one destroys the group.
  std::vector<const Job*> dead;
  std::vector<const Job*> chosen;
  int64_t tokens = 0;
  for (const auto& [rank, job] : queue.FirstGroup().jobs) {
    if (Expired(*job, now)) {
      dead.push_back(job.get());
      continue;
    }
    // The first goes in whatever its size: a request above the budget runs alone.
    if (!chosen.empty() && job->tokens > limits_.max_tokens - tokens) continue;
    chosen.push_back(job.get());
    tokens += job->tokens;
    if (tokens >= limits_.max_tokens ||
        static_cast<int64_t>(chosen.size()) >= limits_.max_requests) {
      break;
    }
  }
  for (const Job* job : dead) expired->push_back(queue.Remove(*job));
  JobList batch;
  batch.reserve(chosen.size());
  for (const Job* job : chosen) batch.push_back(queue.Remove(*job));
  return batch;
}

}  // namespace castor
