// The requests that wait for a batch: in groups that may share one, and in the order of service,
// which is fair between tenants (fair_queue.h) and by rank within one.
//
// A group is due when it could fill a batch, or has waited for company for long enough: for the
// delay since its head came, or, without a fixed one, for as long as that pays (company.h).
// Everything is indexed: an update or a lookup costs O(log n), except that the first job is
// searched past those that are not due or too long.
//
// Not thread-safe: Scheduler guards it. Owns the jobs in it. Not bounded itself: admission bounds
// what gets this far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/base/spare_nodes.h"
#include "engine/base/time.h"
#include "engine/jobs/job.h"
#include "engine/jobs/rank.h"
#include "engine/jobs/tenant_table.h"
#include "engine/scheduling/batch_limits.h"
#include "engine/scheduling/company.h"
#include "engine/scheduling/fair_queue.h"
#include "engine/scheduling/opening.h"

namespace castor {

class Queue {
 public:
  using Jobs = std::map<Rank, std::unique_ptr<Job>>;
  // Jobs of one batch key. Never empty.
  struct Group {
    Jobs jobs;
    int64_t tokens = 0;  // of all of them
    double own_us = 0;   // predicted, likewise
  };

  explicit Queue(const BatchLimits& limits,
                 TenantTablePtr tenants = std::make_shared<TenantTable>())
      : limits_(limits), order_(std::move(tenants), kCreditUs) {}

  const BatchLimits& limits() const { return limits_; }
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }

  // If there is no memory for a node, the process ends: a job is never half inserted.
  void Push(std::unique_ptr<Job> job) noexcept { DoPush(std::move(job)); }

  // Removes a job, which must be in the queue.
  std::unique_ptr<Job> Remove(const Job& job) noexcept;

  // A batch begins with this job; and one of it is charged to its tenant, with `us` of the device.
  void Begin(const Job& head) noexcept { order_.Begin(head.tenant); }
  void Charge(const Job& job, double us) noexcept { order_.Charge(job.tenant, us); }

  // Charges a tenant with what a run took beyond that.
  void Settle(const std::string& tenant, double us) noexcept { order_.Settle(tenant, us); }

  // The virtual time of the job's tenant now, and after `us` of service.
  double TurnOf(const Job& job) const { return order_.TimeOf(job.tenant); }
  double TurnAfter(const Job& job, double us) const {
    return TurnOf(job) + us / order_.WeightOf(job.tenant);
  }

  // When the first group is due: TimePoint::min() if one is already or may be, max() if the queue
  // is empty.
  TimePoint DueAt() const;

  // The first job in the order of service whose group is due, that is short enough and that the
  // device has memory for; null if there is none. A group that may wait for company, and is the
  // first otherwise, may begin to wait now. `now` must not decrease between calls.
  const Job* FirstDue(TimePoint now, const Opening& opening = {}) noexcept;

  // The jobs that may share a batch with this one, which is among them. Valid until the queue
  // changes.
  const Group& GroupOf(const Job& job) const { return groups_.find(job.batch_key)->second; }

  // Whether jobs of several tenants wait.
  bool HasSeveralTenants() const { return order_.waiting() > 1; }

  // Ends the delay: from now on every group is due.
  void EndDelay() noexcept;

 private:
  // What a tenant that asks for less than its share may have at once: a few short requests, or one
  // that is not so short. Longer, and it would hold up the others noticeably.
  static constexpr double kCreditUs = 100'000;

  struct Listed : Group {
    bool waits = false;              // for company
    TimePoint until{};               // then it is due, if it waits
    std::optional<TimePoint> first;  // when it began to wait, unless for a fixed delay
    bool due = false;                // it does not wait any more
  };

  void DoPush(std::unique_ptr<Job>&& job);

  // The group has changed: whether it waits, and until when, has to be looked at again.
  void Update(const std::string& key, Listed& group, TimePoint now);
  // Whether the group, which does not wait, is due. If not, it waits from now on.
  bool Decide(const std::string& key, Listed& group, TimePoint now);
  void Wait(Listed& group, TimePoint until);
  void StopWaiting(Listed& group);

  BatchLimits limits_;
  using Groups = std::unordered_map<std::string, Listed>;
  Groups groups_;  // by batch key; nodes do not move
  SpareNodes<Groups> spare_groups_;
  SpareNodes<Jobs> spare_jobs_;
  std::set<std::pair<TimePoint, Listed*>> waits_;  // the groups that wait for company
  CompanyForecast company_;
  FairQueue<Rank, const Job*> order_;  // all jobs
  size_t size_ = 0;
};

}  // namespace castor
