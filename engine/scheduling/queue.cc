#include "engine/scheduling/queue.h"

#include <utility>

namespace castor {

void Queue::Push(std::unique_ptr<Job> job) noexcept {
  const Rank rank = RankOf(*job);
  Group& group = groups_[job->batch_key];
  if (group.jobs.empty()) {
    heads_.emplace(rank, &group);
  } else if (const Rank head = group.jobs.begin()->first; rank < head) {
    heads_.erase(head);
    heads_.emplace(rank, &group);
  }
  group.tokens += job->tokens;
  group.jobs.emplace(rank, std::move(job));
  ++size_;
}

std::unique_ptr<Job> Queue::Remove(const Job& job) noexcept {
  const auto group_at = groups_.find(job.batch_key);
  Group& group = group_at->second;
  const auto at = group.jobs.find(RankOf(job));
  const Rank rank = at->first;
  std::unique_ptr<Job> taken = std::move(at->second);
  const bool was_head = at == group.jobs.begin();
  group.jobs.erase(at);
  group.tokens -= taken->tokens;
  --size_;
  if (was_head) {
    heads_.erase(rank);
    if (group.jobs.empty()) {
      groups_.erase(group_at);
    } else {
      heads_.emplace(group.jobs.begin()->first, &group);
    }
  }
  return taken;
}

}  // namespace castor
