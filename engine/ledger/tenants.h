// The tenants that have a request here now or had one a moment ago. Each has one record: its terms,
// what it holds of the budgets, its turns at the engine's three resources, and its waiting requests
// in the order of service. Admission asks here how long one more request would wait, and which
// others it would make late.
//
// Within a tenant the order is that of ranks. Between tenants it is fair: while one tenant is
// served for some time, each other tenant is served for at most as long, in proportion to their
// weights. A request preempts runs at least four times longer (runs.h). Of a tenant's requests that
// may share a batch, the first is charged with the batch's fixed time.
//
// Not thread-safe: the ledger guards it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/ledger/budgets.h"
#include "engine/ledger/decaying_sum.h"
#include "engine/ledger/fair_share.h"
#include "engine/ledger/job.h"
#include "engine/ledger/rank.h"
#include "engine/ledger/runs.h"

namespace castor {

// Times in microseconds, summed by size class. This makes it cheap to tell how much of them a
// request of a given length cannot preempt.
class TimesBySize {
 public:
  void Add(double us) { Add(us, us); }
  void Remove(double us) { Add(us, -us); }
  double total() const { return total_; }
  // The sum of the times that a request of `us` cannot preempt.
  double NotPreemptedBy(double us) const;
  // Whether that sum includes a time of `of`.
  static bool IsNotPreemptedBy(double us, double of) {
    return TimeClassOf(of) < FirstPreemptedBy(us);
  }

 private:
  // The first class whose times are all long enough to be preempted by `us`.
  static size_t FirstPreemptedBy(double us) { return TimeClassOf(us / Runs::kMuchShorter) + 1; }
  void Add(double of, double us) {
    sums_[TimeClassOf(of)] += us;
    total_ += us;
  }

  std::array<double, kTimeClasses> sums_{};
  double total_ = 0;
};

// The number of requests in each size class of time.
class CountsBySize {
 public:
  void Add(double us, int count) {
    counts_[TimeClassOf(us)] += count;
    total_ += count;
  }
  bool any() const { return total_ > 0; }
  // Whether a job may take at most `us`. False is certain; true may be wrong within a time class.
  bool AnyUpTo(double us) const {
    return std::any_of(counts_.begin(), counts_.begin() + TimeClassOf(us) + 1,
                       [](int count) { return count > 0; });
  }

 private:
  std::array<int, kTimeClasses> counts_{};
  int total_ = 0;
};

// A request that waits, as forecasts see it: from its admission until it runs.
struct Waiting {
  double us = 0;
  bool charged_batch_cost = false;  // whether `us` includes its batch's fixed time
  TimePoint deadline;
  Priority priority = Priority::kNormal;
  std::map<std::string, int64_t>::iterator same_key;  // its batch key in the tenant's `keys`
  const Job* ready = nullptr;                         // the job, while it waits for a batch
};

struct Tenant {
  // How long a record remembers: a tenant that was here or was refused is likely to come back.
  static constexpr std::chrono::seconds kRecent = kPatience;

  std::string name;
  TenantTerms terms;
  Cost in_use{0, 0, 0};
  Cost gathered{0, 0, 0};            // by Ledger::Reserve
  std::optional<TimePoint> refused;  // the last time that there was no room for it
  double demand_weight = 0;          // its part of Tenants::demand_weight_

  // All of its requests that wait, in the order of service.
  absl::btree_map<Rank, Waiting> line;
  TimesBySize waiting_us;               // of the line
  CountsBySize ready_us;                // of those in the line that wait for a batch
  std::map<std::string, int64_t> keys;  // the number in the line with each batch key
  DecayingSum admitted_us{kRecent};     // predicted device time of what was admitted

  FairShare::Account tokenizing, device, answering;
  // By a rank that sinks with each slice of a request's texts (pools.cc).
  absl::btree_map<Rank, std::unique_ptr<Job>> to_tokenize;
  std::deque<Answer> to_answer;

  // Whether it has no request and no answer here.
  bool idle() const { return in_use.requests == 0 && in_use.bytes == 0 && to_answer.empty(); }
};

class Tenants {
 public:
  // The number of records from which on idle ones are forgotten.
  static constexpr size_t kMany = 1024;

  using Terms = std::map<std::string, TenantTerms>;

  explicit Tenants(Terms terms) {
    tenants_.reserve(3 * kMany);  // growing later would take long under the lock
    SetTerms(std::move(terms));
  }

  // Applies new terms, also to requests that wait. Terms out of range would break the order of
  // service: a weight becomes the nearest valid one, NaN becomes 1, and a negative quota no quota.
  // Returns the previous terms, to be freed outside the lock.
  Terms SetTerms(Terms terms);

  TenantTerms TermsOf(const std::string& name) const;

  // Null if there is no record.
  Tenant* Find(const std::string& name);
  // Makes a record if there is none. Once there are many records, each call forgets a few of idle
  // tenants that owe nothing.
  Tenant& FindOrAdd(const std::string& name, TimePoint now);

  // Changes what the tenant has in use, or has gathered.
  void Adjust(Tenant& tenant, const Cost& by, bool gathers) noexcept {
    (gathers ? tenant.gathered : tenant.in_use) += by;
    UpdateDemand(tenant);
  }
  // Notes that there was no room for a request of the tenant.
  void Refuse(Tenant& tenant, TimePoint now);
  // To be called after a change of the tenant's answers or terms.
  void UpdateDemand(Tenant& tenant) noexcept;

  // The tenant's fair share of each budget among the tenants that could use more of it now, 0 to 1.
  double ShareOfBudgets(const Tenant& tenant, TimePoint now);

  // ---- The line.

  void Enter(Tenant& tenant, const Job& job, TimePoint now);
  // The job waits for a batch from now on; its predicted time may have changed, but not whether it
  // is charged with the batch's fixed time.
  void SetReady(Tenant& tenant, const Job& job) noexcept;
  // The job is taken out for a batch or an answer. It stays in the line until Leave.
  void EndReady(Tenant& tenant, const Job& job) noexcept;
  void Leave(Tenant& tenant, const Rank& place) noexcept;
  // The job in the line will not run: it does not count as admitted time.
  void NeedsNoRun(Tenant& tenant, const Job& job, TimePoint now) noexcept;

  // Forecast for a candidate job, given when the device frees and a safety factor. `tenant` may be
  // null.
  struct QueueForecast {
    double ahead_us = 0;      // requests of its tenant that are served before it
    double others_us = 0;     // requests of other tenants that wait now and are served meanwhile
    double preempted_us = 0;  // longer requests, which keep their share of the device meanwhile
    double own_us = 0;        // its own time, with its batch's fixed time if it is alone in it
    // Whether a request behind it, of the same priority or a higher one, would miss its deadline
    // because of it.
    bool makes_late = false;
  };
  QueueForecast ForecastQueue(const Job& job, const Tenant* tenant, TimePoint now, double device_us,
                              double margin) const;

  // The share of the device that other tenants' recently admitted requests take.
  double ShareOfOthers(const Tenant* tenant, TimePoint now) const;
  // The share of the device, 0 to 1, that is likely to go to requests which arrive while one of
  // this tenant and priority waits, and are served before it: as much as such requests took
  // recently.
  double ShareAhead(const Tenant* tenant, Priority priority, TimePoint now) const;

  // The time until the fraction `part` of the tenant's waiting requests is served, with what other
  // tenants are served meanwhile.
  double UntilServed(const Tenant& tenant, double part) const;

  double waiting_us() const { return waiting_us_.total(); }
  bool none_waiting() const { return waiting_ == 0; }

  // ---- The turns. RebaseIfNeeded keeps virtual time small enough for a double's precision.
  FairShare tokenizing;
  FairShare device{kFewRequestsUs};
  FairShare answering;
  void RebaseIfNeeded();

 private:
  static constexpr size_t kLevels = static_cast<size_t>(Priority::kHigh) + 1;

  double OwnTime(const Job& job, const Tenant* tenant) const;
  // How long other tenants, which have `most_us` waiting, are served while this one is for `us`.
  double OfOthers(const Tenant* tenant, double weight, double us, double most_us) const;
  void ForgetNext(TimePoint now);
  void EndRefusal(Tenant& tenant) noexcept;

  Terms terms_;
  std::unordered_map<std::string, std::unique_ptr<Tenant>> tenants_;
  std::deque<Tenant*> forget_candidates_;  // all tenants, in the order in which to look at them
  absl::btree_set<std::pair<TimePoint, Tenant*>> refused_;
  double demand_weight_ = 0;  // sum over tenants that could use more of the budgets
  uint64_t last_number_ = 0;
  std::array<DecayingSum, kLevels> admitted_us_{DecayingSum(Tenant::kRecent),
                                                DecayingSum(Tenant::kRecent),
                                                DecayingSum(Tenant::kRecent)};  // by priority
  TimesBySize waiting_us_;
  size_t waiting_ = 0;       // requests
  double total_weight_ = 0;  // of the tenants whose line is not empty
};

}  // namespace castor
