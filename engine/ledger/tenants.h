// The tenants that have something admitted or did a moment ago: one record each, with terms, what
// it holds of the budgets, its turns at the engine's three resources, and all of its requests that
// wait, in the order of service. What admission asks is answered from here: how long would one more
// request wait, and whom would it make late?
//
// The order is that of ranks within a tenant, and fair between tenants: while one is served for
// some time, each of the others is served for at most as much, in proportion to their weights. What
// is much longer than a request, it passes (runs.h). Of a tenant's requests that may share a batch,
// the first pays for it.
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

// Times in microseconds, summed by their size. So it is cheap to say how much of them a request of
// some length does not pass.
class TimesBySize {
 public:
  void Add(double us) { Add(us, us); }
  void Remove(double us) { Add(us, -us); }
  double total() const { return total_; }
  double NotPassedBy(double us) const;
  // Whether one of `of` is among them.
  static bool IsNotPassedBy(double us, double of) { return TimeClassOf(of) < FirstPassedBy(us); }

 private:
  // Each of the classes from here on is of times that are all long enough for `us` to pass.
  static size_t FirstPassedBy(double us) { return TimeClassOf(us / Runs::kMuchShorter) + 1; }
  void Add(double of, double us) {
    sums_[TimeClassOf(of)] += us;
    total_ += us;
  }

  std::array<double, kTimeClasses> sums_{};
  double total_ = 0;
};

// How many requests there are of each class of time.
class CountsBySize {
 public:
  void Add(double us, int count) {
    counts_[TimeClassOf(us)] += count;
    total_ += count;
  }
  bool any() const { return total_ > 0; }
  // Whether there may be one of at most `us`.
  bool AnyUpTo(double us) const {
    return std::any_of(counts_.begin(), counts_.begin() + TimeClassOf(us) + 1,
                       [](int count) { return count > 0; });
  }

 private:
  std::array<int, kTimeClasses> counts_{};
  int total_ = 0;
};

// A request that waits, from its admission until it runs, as forecasts see it.
struct Waiting {
  double us = 0;
  bool pays_for_batch = false;
  TimePoint deadline;
  Priority priority = Priority::kNormal;
  std::map<std::string, int64_t>::iterator company;  // in the tenant's `keys`
  const Job* ready = nullptr;                        // the job, while it waits for a batch
};

struct Tenant {
  // What is remembered of it: who was there or was refused a moment ago is likely to come back.
  static constexpr std::chrono::seconds kRecent = kPatience;

  std::string name;
  TenantTerms terms;
  Cost in_use{0, 0, 0};
  Cost gathered{0, 0, 0};            // by Ledger::Reserve
  std::optional<TimePoint> refused;  // when there was no room for it, last
  double asking_weight = 0;          // its part of Tenants::asking_weight_

  absl::btree_map<Rank, Waiting> line;
  TimesBySize waiting_us;               // of the line
  std::map<std::string, int64_t> keys;  // how many in the line have each batch key
  DecayingSum promised_us{kRecent};     // of the device, by admission

  FairShare::Account tokenizing, device, answering;
  absl::btree_map<Rank, std::unique_ptr<Job>> to_tokenize;
  CountsBySize ready_us;  // of those in the line that wait for a batch
  std::deque<Answer> to_answer;

  // Whether nothing of it is here.
  bool idle() const { return in_use.requests == 0 && in_use.bytes == 0 && to_answer.empty(); }
};

class Tenants {
 public:
  // Tenants that are remembered, before those that are not needed are forgotten.
  static constexpr size_t kMany = 1024;

  using Terms = std::map<std::string, TenantTerms>;

  explicit Tenants(Terms terms) {
    tenants_.reserve(3 * kMany);  // to grow would hold the lock
    SetTerms(std::move(terms));
  }

  // From here on these terms apply, also to what waits. A weight out of range becomes the nearest
  // that is not, one that is no number 1, and a quota below 0 none: the order of service would not
  // survive them. Returns those before, to be freed outside the lock.
  Terms SetTerms(Terms terms);

  TenantTerms TermsOf(const std::string& name) const;

  // Null: the tenant is not known.
  Tenant* Find(const std::string& name);
  // Makes a record if there is none. Records of idle tenants that owe nothing are forgotten once
  // there are many, a few at a time.
  Tenant& FindOrAdd(const std::string& name, TimePoint now);

  // What the tenant has in use changes, or what it has gathered.
  void Adjust(Tenant& tenant, const Cost& by, bool gathers) noexcept {
    (gathers ? tenant.gathered : tenant.in_use) += by;
    Recount(tenant);
  }
  // There was no room for it.
  void Refuse(Tenant& tenant, TimePoint now);
  // After a change of what it has to be answered.
  void Recount(Tenant& tenant) noexcept;

  // The tenant's part of what all may have that could take more of the budgets now.
  double ShareOfBudgets(const Tenant& tenant, TimePoint now);

  // ---- The line.

  void Enter(Tenant& tenant, const Job& job, TimePoint now);
  // The job is ready to run, with its predicted time as it is now. Whether it pays for a batch
  // stays as it was.
  void SetReady(Tenant& tenant, const Job& job) noexcept;
  // The job is taken out for a batch, or to be answered; it stays in the line until it leaves.
  void EndReady(Tenant& tenant, const Job& job) noexcept;
  void Leave(Tenant& tenant, const Rank& place) noexcept;

  // What is expected of a job that wants to be admitted, if everything ahead of it began in
  // `device_us` and all of it took `margin` times as long as predicted. `tenant` may be null.
  struct Forecast {
    double ahead_us = 0;   // of its tenant, served before it begins
    double others_us = 0;  // of other tenants that wait now, served meanwhile
    // Of longer ones, which it passes. They keep their share of the device while it waits.
    double passed_us = 0;
    double own_us = 0;  // its own time, and its batch's if it has no company yet
    // Whether a request behind it, of the same priority or a higher one, would miss its deadline
    // because of it.
    bool makes_late = false;
  };
  Forecast Ask(const Job& job, const Tenant* tenant, TimePoint now, double device_us,
               double margin) const;

  // The part of the device that was promised to other tenants of late.
  double ShareOfOthers(const Tenant* tenant, TimePoint now) const;
  // The part of the device, 0 to 1, that is likely to go to requests which come while one of this
  // tenant and priority waits, and go ahead of it: as much as was promised to such of late.
  double ShareAhead(const Tenant* tenant, Priority priority, TimePoint now) const;

  // The time until `part` of what the tenant has waiting, 0 to 1, is served, and others meanwhile.
  double UntilServed(const Tenant& tenant, double part) const;

  double waiting_us() const { return waiting_us_.total(); }
  bool nobody_waits() const { return waiting_ == 0; }

  // ---- The turns. Virtual time begins anew before it gets too large to count in.
  FairShare tokenizing;
  FairShare device{kFewRequestsUs};
  FairShare answering;
  void StartAnewIfFar();

 private:
  static constexpr size_t kLevels = static_cast<size_t>(Priority::kHigh) + 1;

  double OwnTime(const Job& job, const Tenant* tenant) const;
  // Of the other tenants, which have `most_us`, while this one is served for `us`.
  double OfOthers(const Tenant* tenant, double weight, double us, double most_us) const;
  void ForgetNext(TimePoint now);
  void EndRefusal(Tenant& tenant) noexcept;

  Terms terms_;
  std::unordered_map<std::string, std::unique_ptr<Tenant>> tenants_;
  std::deque<Tenant*> to_look_at_;  // all of them: may they be forgotten?
  absl::btree_set<std::pair<TimePoint, Tenant*>> refused_;
  double asking_weight_ = 0;  // of those that could take more of the budgets
  uint64_t last_number_ = 0;
  std::array<DecayingSum, kLevels> promised_us_{DecayingSum(Tenant::kRecent),
                                                DecayingSum(Tenant::kRecent),
                                                DecayingSum(Tenant::kRecent)};  // by priority
  TimesBySize waiting_us_;
  size_t waiting_ = 0;       // requests
  double total_weight_ = 0;  // of the tenants with a line
};

}  // namespace castor
