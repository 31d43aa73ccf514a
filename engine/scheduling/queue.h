// The requests that wait for a batch: in groups that may share one, and in the order of service,
// which is fair between tenants (fair_queue.h) and by rank within one.
//
// A group is due when it could fill a batch, or when its oldest rank has waited for the delay;
// without a delay it is always due. Everything is indexed: an update or a lookup costs O(log n),
// except that the first job is searched past those that are not due or too long.
//
// Not thread-safe: Scheduler guards it. Owns the jobs in it. Not bounded itself: admission bounds
// what gets this far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/base/time.h"
#include "engine/jobs/job.h"
#include "engine/jobs/rank.h"
#include "engine/jobs/tenant_weights.h"
#include "engine/scheduling/batch_limits.h"
#include "engine/scheduling/fair_queue.h"
#include "engine/scheduling/opening.h"

namespace castor {

class Queue {
 public:
  // Jobs of one batch key. Never empty.
  struct Group {
    std::map<Rank, std::unique_ptr<Job>> jobs;
    int64_t tokens = 0;  // of all of them
  };

  explicit Queue(const BatchLimits& limits, const TenantWeights& weights = {})
      : limits_(limits), order_(weights) {}

  const BatchLimits& limits() const { return limits_; }
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

  // If there is no memory for a node, the process ends: a job is never half inserted.
  void Push(std::unique_ptr<Job> job) noexcept;

  // Removes a job, which must be in the queue.
  std::unique_ptr<Job> Remove(const Job& job) noexcept;

  // A batch begins with this job; and one of it is charged to its tenant, with `us` of the device.
  void Begin(const Job& head) noexcept { order_.Begin(head.tenant); }
  void Charge(const Job& job, double us) noexcept { order_.Charge(job.tenant, us); }

  // The virtual time of the job's tenant now, and after `us` of service.
  double TurnOf(const Job& job) const { return order_.TimeOf(job.tenant); }
  double TurnAfter(const Job& job, double us) const {
    return TurnOf(job) + us / order_.WeightOf(job.tenant);
  }

  // When the first group is due: TimePoint::min() if one is already, max() if the queue is empty.
  TimePoint DueAt() const;

  // The first job in the order of service whose group is due and that is short enough; null if
  // there is none. `now` must not decrease between calls.
  const Job* FirstDue(TimePoint now, const Opening& opening = {}) noexcept;

  // The jobs that may share a batch with this one, which is among them. Valid until the queue
  // changes.
  const Group& GroupOf(const Job& job) const { return groups_.find(job.batch_key)->second; }

  // Whether jobs of several tenants wait.
  bool HasSeveralTenants() const { return order_.waiting() > 1; }

  // Ends the delay: from now on every group is due.
  void EndDelay() noexcept;

 private:
  struct Listed : Group {
    bool waits = false;  // for company
    TimePoint since{};   // when its head was queued, if it waits
  };

  // Whether the group waits, and since when, has to be looked at again.
  void Update(Listed& group);
  void StopWaiting(Listed& group);

  BatchLimits limits_;
  std::unordered_map<std::string, Listed> groups_;  // by batch key; nodes do not move
  std::set<std::pair<TimePoint, Listed*>> waits_;   // the groups that wait for company
  FairQueue<Rank, const Job*> order_;               // all jobs
  size_t size_ = 0;
};

}  // namespace castor
