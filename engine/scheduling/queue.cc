#include "engine/scheduling/queue.h"

#include <utility>

namespace castor {

void Queue::Push(std::unique_ptr<Job> job) noexcept {
  Listed& group = groups_[job->batch_key];
  const bool is_new = group.jobs.empty();
  group.tokens += job->tokens;
  const Rank rank = job->rank;
  group.jobs.emplace(rank, std::move(job));
  ++size_;
  if (is_new) {
    group.turn = turns_.emplace(TurnOf(group), &group).first;
  } else {
    SetTurn(group, TurnOf(group));
  }
}

std::unique_ptr<Job> Queue::Remove(const Job& job) noexcept {
  const auto group_at = groups_.find(job.batch_key);
  Listed& group = group_at->second;
  const auto at = group.jobs.find(job.rank);
  std::unique_ptr<Job> taken = std::move(at->second);
  group.jobs.erase(at);
  group.tokens -= taken->tokens;
  --size_;
  if (group.jobs.empty()) {
    turns_.erase(group.turn);
    groups_.erase(group_at);
  } else {
    SetTurn(group, TurnOf(group));
  }
  return taken;
}

TimePoint Queue::DueAt() const {
  if (turns_.empty()) return TimePoint::max();
  const Turn& first = turns_.begin()->first;
  return first.waits ? first.since + limits_.delay : TimePoint::min();
}

const Queue::Group* Queue::FirstDue(TimePoint now) noexcept {
  // Groups whose heads have waited long enough become due.
  const Turn first_waiting{.waits = true, .since = TimePoint::min(), .rank = {}};
  for (auto next = turns_.lower_bound(first_waiting);
       next != turns_.end() && next->first.since + limits_.delay <= now;
       next = turns_.lower_bound(first_waiting)) {
    SetTurn(*next->second, {.waits = false, .since = {}, .rank = next->first.rank});
  }
  if (turns_.empty() || turns_.begin()->first.waits) return nullptr;
  return turns_.begin()->second;
}

void Queue::EndDelay() noexcept {
  limits_.delay = {};
  for (auto& [key, group] : groups_) SetTurn(group, TurnOf(group));
}

// Does not look at the clock: FirstDue moves the groups whose delay is over.
Queue::Turn Queue::TurnOf(const Group& group) const {
  const Job& head = group.head();
  if (limits_.delay.count() == 0 || limits_.Reached(group.tokens, group.jobs.size())) {
    return {.waits = false, .since = {}, .rank = head.rank};
  }
  return {.waits = true, .since = head.queued, .rank = head.rank};
}

void Queue::SetTurn(Listed& group, const Turn& turn) {
  if (group.turn->first == turn) return;
  auto node = turns_.extract(group.turn);
  node.key() = turn;
  group.turn = turns_.insert(std::move(node)).position;
}

}  // namespace castor
