// The requests that wait for a batch, in groups that may share one, and the order of the groups.
//
// A group is due when it could fill a batch, or when its head, the first of its jobs by rank, has
// waited for the delay; without a delay it is always due. Of the groups that are due, the one whose
// head is first by rank comes first. Everything is indexed: an update or a lookup costs O(log n),
// however many groups there are.
//
// Not thread-safe: Scheduler guards it. Owns the jobs in it. Not bounded itself: admission bounds
// what gets this far.
#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "engine/base/time.h"
#include "engine/jobs/job.h"
#include "engine/jobs/rank.h"
#include "engine/scheduling/batch_limits.h"

namespace castor {

class Queue {
 public:
  // Jobs of one batch key. Never empty.
  struct Group {
    std::map<Rank, std::unique_ptr<Job>> jobs;
    int64_t tokens = 0;  // of all of them

    const Job& head() const { return *jobs.begin()->second; }
  };

  explicit Queue(const BatchLimits& limits) : limits_(limits) {}

  const BatchLimits& limits() const { return limits_; }
  bool empty() const { return turns_.empty(); }
  size_t size() const { return size_; }

  // If there is no memory for a node, the process ends: a job is never half inserted.
  void Push(std::unique_ptr<Job> job) noexcept;

  // Removes a job, which must be in the queue. Allocates nothing.
  std::unique_ptr<Job> Remove(const Job& job) noexcept;

  // When the first group is due: TimePoint::min() if one is already, max() if the queue is empty.
  TimePoint DueAt() const;

  // The first group that is due, or null. `now` must not decrease between calls. Valid until the
  // queue changes.
  const Group* FirstDue(TimePoint now) noexcept;

  // Ends the delay: from now on every group is due.
  void EndDelay() noexcept;

 private:
  // The order of groups: first those that are due, by rank; then the others, longest wait first.
  struct Turn {
    bool waits = false;
    TimePoint since;  // when the head was queued, if it waits
    Rank rank;        // of the head; unique

    auto operator<=>(const Turn&) const = default;
  };
  struct Listed;
  using Turns = std::map<Turn, Listed*>;
  struct Listed : Group {
    Turns::iterator turn;
  };

  Turn TurnOf(const Group& group) const;
  // Moves the group's node if its turn has changed. Allocates nothing.
  void SetTurn(Listed& group, const Turn& turn);

  BatchLimits limits_;
  std::unordered_map<std::string, Listed> groups_;  // by batch key; nodes do not move
  Turns turns_;                                     // every group
  size_t size_ = 0;
};

}  // namespace castor
