#include "engine/scheduling/queue.h"

#include <algorithm>
#include <chrono>

#include "absl/base/attributes.h"

namespace castor {
namespace {

// A request does not wait for company if its deadline is nearer than so many times the wait and the
// batch's own time: a wait is not in the forecast by which it was admitted.
constexpr double kSpare = 2;

// Whether the jobs have time for a wait and a batch of so many microseconds in all.
bool HaveTime(const Queue::Group& group, double us, TimePoint now) {
  return std::none_of(group.jobs.begin(), group.jobs.end(), [&](const auto& entry) {
    const auto& deadline = entry.second->deadline;
    return deadline && Microseconds(now, *deadline) < kSpare * us;
  });
}

std::chrono::nanoseconds InNanoseconds(double us) {
  return std::chrono::nanoseconds(static_cast<int64_t>(us * 1e3));
}

}  // namespace

// This and Wait are never inlined into what is noexcept: see batcher.cc.
ABSL_ATTRIBUTE_NOINLINE
void Queue::DoPush(std::unique_ptr<Job>&& job) {
  order_.Insert(job->tenant, job->rank, job.get());
  auto at = groups_.find(job->batch_key);
  if (at == groups_.end()) at = spare_groups_.Insert(groups_, job->batch_key, Listed());
  Listed& group = at->second;
  group.tokens += job->tokens;
  group.own_us += job->predicted.own_us;
  const TimePoint now = job->queued;
  const Rank rank = job->rank;
  spare_jobs_.Insert(group.jobs, rank, std::move(job));
  ++size_;
  if (!limits_.delay) company_.Came(at->first, now);
  Update(at->first, group, now);
}

std::unique_ptr<Job> Queue::Remove(const Job& job) noexcept {
  order_.Remove(job.tenant, job.rank);
  const auto group_at = groups_.find(job.batch_key);
  Listed& group = group_at->second;
  std::unique_ptr<Job> taken = spare_jobs_.Take(group.jobs, group.jobs.find(job.rank));
  group.tokens -= taken->tokens;
  group.own_us -= taken->predicted.own_us;
  --size_;
  if (group.jobs.empty()) {
    StopWaiting(group);
    spare_groups_.Take(groups_, group_at);
    return taken;
  }
  group.due = false;
  if (limits_.delay) {
    Update(group_at->first, group, {});
  } else if (!group.waits) {
    group.first.reset();
  }
  return taken;
}

TimePoint Queue::DueAt() const {
  if (groups_.empty()) return TimePoint::max();
  if (waits_.size() < groups_.size()) return TimePoint::min();
  return waits_.begin()->first;
}

const Job* Queue::FirstDue(TimePoint now, const Opening& opening) noexcept {
  // Groups that have waited for long enough become due.
  while (!waits_.empty() && waits_.begin()->first <= now) {
    Listed& group = *waits_.begin()->second;
    StopWaiting(group);
    group.due = true;
  }
  const double most_us = std::max(opening.passage.most_us, opening.passage.others_us);
  const bool always = limits_.delay && limits_.delay->count() == 0;
  const bool passes = opening.beside == Opening::Beside::kHeldUp;
  const auto* const first = order_.First([&](const Rank&, const Job* job) {
    const double us = job->predicted.alone_us();
    if (us > most_us) return false;  // far cheaper than a look at its tenant
    if (passes && !opening.HasMemoryFor(*job)) return false;
    if (us > opening.MostUs(*job, TurnAfter(*job, us))) return false;
    if (always) return true;
    const auto group = groups_.find(job->batch_key);
    return !group->second.waits && Decide(group->first, group->second, now);
  });
  // One that waits for memory is not overtaken, save at checkpoints: those end.
  return first == nullptr || !opening.HasMemoryFor(*first->second) ? nullptr : first->second;
}

void Queue::EndDelay() noexcept {
  limits_.delay = std::chrono::microseconds(0);
  while (!waits_.empty()) StopWaiting(*waits_.begin()->second);
}

// Does not look at the clock: FirstDue notices that a wait is over.
void Queue::Update(const std::string& key, Listed& group, TimePoint now) {
  if (limits_.Reached(group.tokens, group.jobs.size())) {
    StopWaiting(group);
    group.due = true;
  } else if (!limits_.delay) {
    // What does not wait is decided when it could begin.
    if (!group.waits) return;
    StopWaiting(group);
    Decide(key, group, now);
  } else if (limits_.delay->count() > 0) {
    Wait(group, group.jobs.begin()->second->queued + *limits_.delay);
  }
}

bool Queue::Decide(const std::string& key, Listed& group, TimePoint now) {
  if (limits_.delay || group.due) return true;
  const CompanyForecast::Batch batch = {.requests = group.jobs.size(),
                                        .once_us = group.jobs.begin()->second->predicted.batch_us,
                                        .own_us = group.own_us};
  const double us = company_.WaitUs(key, batch, now);
  if (us > 0 && HaveTime(group, us + batch.once_us + batch.own_us, now)) {
    // Not again and again for longer than a batch of its own would take.
    if (!group.first) group.first = now;
    const TimePoint until =
        std::min(now + InNanoseconds(us), *group.first + InNanoseconds(batch.once_us));
    if (until > now) {
      Wait(group, until);
      return false;
    }
  }
  group.due = true;
  return true;
}

ABSL_ATTRIBUTE_NOINLINE
void Queue::Wait(Listed& group, TimePoint until) {
  if (group.waits && group.until == until) return;
  StopWaiting(group);
  group.waits = true;
  group.until = until;
  waits_.emplace(until, &group);
}

void Queue::StopWaiting(Listed& group) {
  if (!group.waits) return;
  waits_.erase({group.until, &group});
  group.waits = false;
}

}  // namespace castor
