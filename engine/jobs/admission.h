// Admission: who may come in. Budgets bound everything admitted and not yet answered, in requests,
// tokens, bytes of staging memory and predicted time; and a request that cannot be answered by its
// deadline, as far as is predicted, is refused before it has cost anything. So what is admitted is
// expected to be answered in time. The device's memory is taken when a batch begins: a request is
// refused here only if it could never have as much as it needs. A tenant's quota is a budget of its
// own in the same sense, over what the tenant has admitted.
//
// Admission is thread-safe. A Reservation belongs to one request and travels with it until its
// answer is destroyed. It keeps its Admission alive.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/base/spare_nodes.h"
#include "engine/jobs/active_runs.h"
#include "engine/jobs/device_memory.h"
#include "engine/jobs/predicted_time.h"
#include "engine/jobs/rank.h"
#include "engine/jobs/tenant_table.h"
#include "engine/jobs/timeline.h"

namespace castor {

// One request's share of the budgets.
struct Cost {
  int64_t requests = 1;
  int64_t tokens = 0;
  int64_t bytes = 0;
};

struct Budgets {
  Cost most;
  // The longest predicted time until a request begins, and of one request alone.
  std::chrono::microseconds queued_time = std::chrono::microseconds::max();
  std::chrono::microseconds request_time = std::chrono::microseconds::max();
};

// What a request asks for.
struct Claim {
  Cost cost;
  PredictedTime time = {};
  MemoryNeed memory = {};
  std::string batch_key = {};  // of the requests that may share its batch
  std::string tenant = {};
  Priority priority = Priority::kNormal;
  std::optional<TimePoint> deadline = {};
};

class Admission;

// A share of the budgets, and a place in the order; given back when destroyed, on any thread.
// Movable.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(admission_, other.admission_);
    std::swap(cost_, other.cost_);
    std::swap(rank_, other.rank_);
    std::swap(tenant_, other.tenant_);
    std::swap(place_, other.place_);
    return *this;
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { Release(); }

  // Replaces the estimate once the true cost is known. It may grow past a budget: an admitted
  // request is not refused afterwards.
  void Adjust(int64_t tokens, int64_t bytes) noexcept;

  // TOO_LARGE when the true need of the device's memory, now that it is known, could never be met.
  absl::Status CheckMemory(const MemoryNeed& memory) const;

  // Replaces the predicted time.
  void AdjustTime(const PredictedTime& time) noexcept;

  // The request begins to run, or never will: nobody waits for it any more.
  void LeaveQueue() noexcept;

  // Gives back all but `bytes`: the request is answered, and the caller still holds the answer.
  void KeepOnly(int64_t bytes) noexcept;

  void Release() noexcept;

  const Cost& cost() const { return cost_; }
  // The place in the order; its sequence identifies the request.
  const Rank& rank() const { return rank_; }

 private:
  friend class Admission;

  std::shared_ptr<Admission> admission_;
  Cost cost_;
  Rank rank_;
  std::string tenant_;
  std::optional<Timeline::Place> place_;  // while it waits
};

// How full the budgets are.
struct AdmissionLoad {
  Cost in_use;
  double queued_us = 0;  // predicted, of what waits
  // Of the scarcest budget, 0 to 1.
  double saturation = 0;
};

// Owned by shared_ptr.
class Admission : public std::enable_shared_from_this<Admission> {
 public:
  Admission(Budgets budgets, std::shared_ptr<const Clock> clock,
            TenantTablePtr tenants = std::make_shared<TenantTable>())
      : budgets_(budgets),
        clock_(std::move(clock)),
        terms_(std::move(tenants)),
        timeline_(terms_) {}

  // TOO_LARGE when `cost` alone exceeds a budget, or a quota of its tenant.
  absl::Status CheckAlone(const Cost& cost, const std::string& tenant) const;

  // Checks the same, and the predicted time; then takes the share and a place in the order.
  //
  // TOO_LARGE when the request alone would take longer than any may, or more of the device's memory
  // than the models leave. DEADLINE_EXCEEDED when its
  // deadline is expected to pass before it could be answered. QUEUE_FULL when its tenant has
  // used up a quota, when it does not fit next to what is admitted, would wait for too long, or
  // would make others late that were admitted before. The last two bring a hint when to retry, if
  // that may help.
  absl::StatusOr<Reservation> Reserve(const Claim& claim);

  // The runs on the device: the engine thread keeps them up to date.
  ActiveRuns& runs() { return runs_; }

  // The device's memory. Shared with what holds some of it for longer than this object lives.
  const std::shared_ptr<DeviceBudget>& device_memory() const { return device_memory_; }
  // What neither weights nor runs hold of it; below 0 if weights came while runs held the rest.
  int64_t free_device_bytes() const { return device_memory_->for_runs() - runs_.held_bytes(); }

  const ActiveRuns& runs() const { return runs_; }

  AdmissionLoad load() const;
  Cost in_use() const { return load().in_use; }
  const Budgets& budgets() const { return budgets_; }

 private:
  friend class Reservation;

  // What is expected of a request.
  struct Outlook {
    double wait_us = 0;
    double own_us = 0;  // with its company
    double alone_us = 0;
    double wait_margin = 1;   // that the wait may be longer
    bool makes_late = false;  // others that were admitted before
  };
  Outlook Foresee(const Timeline::Candidate& candidate, const MemoryNeed& memory, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  absl::Status CheckAlone(const Cost& cost, const Cost& quota) const;
  absl::Status CheckQuota(const Claim& claim, const Cost& quota) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckTime(const PredictedTime& time) const;
  absl::Status CheckMemory(const MemoryNeed& memory) const;
  absl::Status CheckRoom(const Claim& claim, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckDeadlines(const Timeline::Candidate& candidate, const MemoryNeed& memory,
                              TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Reservation Take(const Claim& claim, const Timeline::Candidate& candidate, TimePoint now) noexcept
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return DoTake(claim, candidate, now);
  }
  Reservation DoTake(const Claim& claim, const Timeline::Candidate& candidate, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // From here on new terms apply. One walk over the tenants for each replacement.
  void ReadTerms() noexcept ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetIdle(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool MayTakeLast(const Claim& claim, TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Adjust(const std::string& tenant, const Cost& by) noexcept;
  void AdjustTime(Timeline::Place place, const PredictedTime& time) noexcept;
  void Remove(Timeline::Place place) noexcept;

  const Budgets budgets_;
  const std::shared_ptr<const Clock> clock_;
  const TenantTablePtr terms_;
  ActiveRuns runs_;
  const std::shared_ptr<DeviceBudget> device_memory_ = std::make_shared<DeviceBudget>();

  // A tenant that has something admitted, or was refused a moment ago.
  struct Tenant {
    Cost in_use{0, 0, 0};
    std::optional<TimePoint> refused = {};
    TenantTerms terms = {};

    bool idle() const { return in_use.requests == 0 && in_use.bytes == 0; }
  };

  mutable Mutex mu_;
  Cost in_use_ ABSL_GUARDED_BY(mu_) = {0, 0, 0};
  Timeline timeline_ ABSL_GUARDED_BY(mu_);
  using Tenants = std::map<std::string, Tenant>;
  Tenants tenants_ ABSL_GUARDED_BY(mu_);
  uint64_t terms_version_ ABSL_GUARDED_BY(mu_) = 0;
  SpareNodes<Tenants> spare_tenants_ ABSL_GUARDED_BY(mu_);
  Ticket last_ticket_ ABSL_GUARDED_BY(mu_) = 0;
  TimePoint next_forgetting_ ABSL_GUARDED_BY(mu_) = TimePoint::min();
  TimePoint next_trial_ ABSL_GUARDED_BY(mu_) = TimePoint::min();
};

}  // namespace castor
