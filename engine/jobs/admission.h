// Admission: the budgets that bound everything admitted and not yet answered, in requests, tokens
// and bytes of staging memory. What is refused here has cost nothing yet.
//
// Admission is thread-safe. A Reservation belongs to one request and travels with it until its
// answer is destroyed. It keeps its Admission alive.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/jobs/throughput.h"

namespace castor {

// One request's share of the budgets.
struct Cost {
  int64_t requests = 1;
  int64_t tokens = 0;
  int64_t bytes = 0;
};

class Admission;

// A share of the budgets; given back when destroyed, on any thread. Movable.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept { *this = std::move(other); }
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(admission_, other.admission_);
    std::swap(cost_, other.cost_);
    std::swap(finished_, other.finished_);
    return *this;
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { Release(); }

  // Replaces the estimate once the true cost is known. It may grow past a budget: an admitted
  // request is not refused afterwards.
  void Adjust(int64_t tokens, int64_t bytes) noexcept;

  // Gives back all but `bytes`: the request is answered, and the caller still holds the answer.
  void KeepOnly(int64_t bytes) noexcept;

  // Marks the request's work as done. Only such requests count for the throughput behind the retry
  // hint; those that were refused, cancelled or failed just give back their share.
  void CountAsFinished() noexcept { finished_ = true; }

  void Release() noexcept;

  const Cost& cost() const { return cost_; }

 private:
  friend class Admission;
  Reservation(std::shared_ptr<Admission> admission, Cost cost)
      : admission_(std::move(admission)), cost_(cost) {}

  std::shared_ptr<Admission> admission_;
  Cost cost_;
  bool finished_ = false;
};

// Owned by shared_ptr.
class Admission : public std::enable_shared_from_this<Admission> {
 public:
  Admission(Cost budgets, std::shared_ptr<const Clock> clock)
      : budgets_(budgets), clock_(std::move(clock)) {}

  // TOO_LARGE when `cost` alone exceeds a budget.
  absl::Status CheckAlone(const Cost& cost) const;

  // Checks the same, then takes the share. QUEUE_FULL, with a hint when to retry, when it does not
  // fit next to what is admitted.
  absl::StatusOr<Reservation> Reserve(Cost cost);

  Cost in_use() const;
  const Cost& budgets() const { return budgets_; }

 private:
  friend class Reservation;

  void Replace(const Cost& old_cost, const Cost& new_cost) noexcept;
  void Return(const Cost& cost, bool finished) noexcept;
  std::chrono::milliseconds RetryAfter(const Cost& cost, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Cost budgets_;
  const std::shared_ptr<const Clock> clock_;

  mutable Mutex mu_;
  Cost in_use_ ABSL_GUARDED_BY(mu_) = {0, 0, 0};
  Throughput requests_ ABSL_GUARDED_BY(mu_);
  Throughput tokens_ ABSL_GUARDED_BY(mu_);
  Throughput bytes_ ABSL_GUARDED_BY(mu_);
};

}  // namespace castor
