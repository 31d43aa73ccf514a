#include "engine/scheduling/queue.h"

#include <algorithm>

namespace castor {

void Queue::Push(std::unique_ptr<Job> job) noexcept {
  order_.Insert(job->tenant, job->rank, job.get());
  Listed& group = groups_[job->batch_key];
  group.tokens += job->tokens;
  const Rank rank = job->rank;
  group.jobs.emplace(rank, std::move(job));
  ++size_;
  Update(group);
}

std::unique_ptr<Job> Queue::Remove(const Job& job) noexcept {
  order_.Remove(job.tenant, job.rank);
  const auto group_at = groups_.find(job.batch_key);
  Listed& group = group_at->second;
  const auto at = group.jobs.find(job.rank);
  std::unique_ptr<Job> taken = std::move(at->second);
  group.jobs.erase(at);
  group.tokens -= taken->tokens;
  --size_;
  if (group.jobs.empty()) {
    StopWaiting(group);
    groups_.erase(group_at);
  } else {
    Update(group);
  }
  return taken;
}

TimePoint Queue::DueAt() const {
  if (groups_.empty()) return TimePoint::max();
  if (waits_.size() < groups_.size()) return TimePoint::min();
  return waits_.begin()->first + limits_.delay;
}

const Job* Queue::FirstDue(TimePoint now, const Opening& opening) noexcept {
  // Groups whose heads have waited long enough become due.
  while (!waits_.empty() && waits_.begin()->first + limits_.delay <= now) {
    StopWaiting(*waits_.begin()->second);
  }
  const double most_us = std::max(opening.passage.most_us, opening.passage.others_us);
  const auto* const first = order_.First([&](const Rank&, const Job* job) {
    const double us = job->predicted.alone_us();
    if (us > most_us) return false;  // far cheaper than a look at its tenant
    if (us > opening.MostUs(*job, TurnAfter(*job, us))) return false;
    return waits_.empty() || !groups_.find(job->batch_key)->second.waits;
  });
  return first == nullptr ? nullptr : first->second;
}

void Queue::EndDelay() noexcept {
  limits_.delay = {};
  while (!waits_.empty()) StopWaiting(*waits_.begin()->second);
}

// Does not look at the clock: FirstDue notices that a delay is over.
void Queue::Update(Listed& group) {
  const TimePoint since = group.jobs.begin()->second->queued;
  const bool waits = limits_.delay.count() > 0 && !limits_.Reached(group.tokens, group.jobs.size());
  if (waits == group.waits && since == group.since) return;
  StopWaiting(group);
  group.since = since;
  if (!waits) return;
  group.waits = true;
  waits_.emplace(since, &group);
}

void Queue::StopWaiting(Listed& group) {
  if (!group.waits) return;
  waits_.erase({group.since, &group});
  group.waits = false;
}

}  // namespace castor
