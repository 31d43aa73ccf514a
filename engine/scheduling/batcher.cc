#include "engine/scheduling/batcher.h"

#include <vector>

#include "absl/base/attributes.h"

namespace castor {
namespace {

// Never inlined: when an exception reaches a noexcept function with locals to destroy, GCC calls
// std::terminate without a current exception, and the handler could not say why the process ends.
ABSL_ATTRIBUTE_NOINLINE
JobList FormFrom(const Queue::Group& group, Queue& queue, TimePoint now, JobList* expired) {
  // Choose first, remove afterwards: removing the last job destroys the group.
  const BatchLimits& limits = queue.limits();
  std::vector<const Job*> dead;
  std::vector<const Job*> chosen;
  int64_t tokens = 0;
  for (const auto& [rank, job] : group.jobs) {
    if (Expired(*job, now)) {
      dead.push_back(job.get());
      continue;
    }
    // The first is taken whatever its size: a request above the limit runs alone.
    if (!chosen.empty() && job->tokens > limits.max_tokens - tokens) continue;
    chosen.push_back(job.get());
    tokens += job->tokens;
    if (limits.Reached(tokens, chosen.size())) break;
  }
  for (const Job* job : dead) expired->push_back(queue.Remove(*job));
  JobList batch;
  batch.reserve(chosen.size());
  for (const Job* job : chosen) batch.push_back(queue.Remove(*job));
  return batch;
}

}  // namespace

JobList FormBatch(Queue& queue, TimePoint now, JobList* expired) noexcept {
  // A group may hold only expired requests.
  while (const Queue::Group* group = queue.FirstDue(now)) {
    JobList batch = FormFrom(*group, queue, now, expired);
    if (!batch.empty()) return batch;
  }
  return {};
}

}  // namespace castor
