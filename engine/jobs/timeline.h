// What is admitted and does not run yet, with predicted times, in the order of service: how long
// would one more request wait, and whom would it make late?
//
// The order is that of ranks within a tenant, and fair between tenants: while one is served for
// some time, each of the others is served for at most as much, in proportion to their weights. What
// is much longer than a request, it passes (active_runs.h). Of a tenant's requests that may share a
// batch, the first pays for it.
//
// Not thread-safe. Functions that change it are noexcept: without memory for a node the process
// ends.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "engine/base/spare_nodes.h"
#include "engine/base/time.h"
#include "engine/jobs/active_runs.h"
#include "engine/jobs/predicted_time.h"
#include "engine/jobs/promises.h"
#include "engine/jobs/rank.h"
#include "engine/jobs/tenant_table.h"
#include "engine/request.h"

namespace castor {

class Timeline {
 public:
  // A request that wants to be served.
  struct Candidate {
    const std::string& tenant;
    const std::string& batch_key;
    Rank rank;
    Priority priority = Priority::kNormal;
    PredictedTime time;
    TimePoint deadline = TimePoint::max();
  };

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

 private:
  // Times in microseconds, summed by their size: powers of two.
  class Times {
   public:
    void Add(double us) { Add(us, us); }
    void Remove(double us) { Add(us, -us); }
    double total() const { return total_; }
    // Of those that `us` does not pass.
    double NotPassedBy(double us) const;
    // Whether one of `of` is among them.
    static bool IsNotPassedBy(double us, double of) { return ClassOf(of) < FirstPassedBy(us); }

   private:
    static constexpr size_t kClasses = 40;
    static size_t ClassOf(double us);
    // Each of the classes from here on is of times that are all long enough for `us` to pass.
    static size_t FirstPassedBy(double us);
    void Add(double of, double us) {
      sums_[ClassOf(of)] += us;
      total_ += us;
    }

    std::array<double, kClasses> sums_{};
    double total_ = 0;
  };

  using Keys = std::map<std::string, int64_t>;
  struct Entry {
    double us = 0;
    bool pays_for_batch = false;
    TimePoint deadline;
    Priority priority = Priority::kNormal;
    Keys::iterator company;  // in the tenant's `keys`
  };
  using Entries = std::map<Rank, Entry>;
  // Who came a while ago may come back: the past counts beside the last moments.
  struct Admitted {
    void Add(double us, TimePoint now) {
      for (Promises& promises : windows) promises.Add(us, now);
    }

    static constexpr size_t kWindows = 2;
    std::array<Promises, kWindows> windows{Promises(std::chrono::seconds(2)),
                                           Promises(std::chrono::seconds(10))};
  };
  struct Tenant {
    double weight = 1;
    Times times = {};  // of all entries
    Entries entries = {};
    Keys keys = {};  // how many entries have each batch key
    Admitted admitted = {};
  };
  using Tenants = std::map<std::string, Tenant>;

 public:
  // An entry's place; valid until it is removed.
  class Place {
   private:
    friend class Timeline;
    Tenants::iterator tenant_;
    Entries::iterator entry_;
  };

  explicit Timeline(TenantTablePtr terms) : terms_(std::move(terms)) {}

  // From here on new weights apply. One walk over the tenants for each replacement of the terms.
  void ReadWeights() noexcept;

  // What would become of `candidate`, and of those behind it, if everything ahead of it began in
  // `device_us` and all of it took `margin` times as long as predicted.
  Forecast Ask(const Candidate& candidate, TimePoint now, double device_us, double margin) const;

  Place Insert(const Candidate& candidate, TimePoint now) noexcept {
    return DoInsert(candidate, now);
  }
  // Replaces an entry's predicted time. Whether it pays for a batch stays as it was.
  void AdjustTime(Place place, const PredictedTime& time) noexcept;
  void Remove(Place place) noexcept;

  // The part of the device, 0 to 1, that requests may take which come while one of this tenant and
  // priority waits, and go ahead of it: as much as has recently been promised to such, and more the
  // less even that was. `ahead_us`: what is ahead of it now.
  double ShareAhead(const std::string& tenant, Priority priority, double ahead_us,
                    TimePoint now) const;

  // The time until `part` of what the tenant has waiting, 0 to 1, is served, and others meanwhile.
  double UntilServed(const std::string& tenant, double part) const;

  double total_us() const { return times_.total(); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  Place DoInsert(const Candidate& candidate, TimePoint now);
  static double OwnTime(const Candidate& candidate, const Tenant* tenant);
  // Of the other tenants, which have `most_us`, while this one is served for `us`.
  double OfOthers(const Tenant* tenant, double weight, double us, double most_us) const;

  double ShareIn(size_t window, const Tenant* own, Priority priority, double ahead_us,
                 TimePoint now) const;
  void ForgetIdle(TimePoint now);

  static constexpr size_t kFewTenants = 16;
  static constexpr size_t kLevels = static_cast<size_t>(Priority::kHigh) + 1;

  const TenantTablePtr terms_;
  uint64_t version_ = 0;                    // of the terms, when weights were read
  Tenants tenants_;                         // those with entries, or with a recent past
  std::array<Admitted, kLevels> admitted_;  // by priority
  Times times_;
  SpareNodes<Entries> spare_entries_;
  SpareNodes<Keys> spare_keys_;
  double total_weight_ = 0;  // of the tenants with entries
  size_t size_ = 0;
  size_t sweep_at_ = kFewTenants;  // tenants; then those that are idle are forgotten
};

}  // namespace castor
