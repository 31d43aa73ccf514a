// Admission: the budgets that bound everything admitted and not yet answered, in requests, tokens
// and bytes of staging memory. What is refused here has cost nothing yet.
//
// Admission is thread-safe. A Reservation belongs to one request and is handed along with it, to
// the end of its answer: it keeps its Admission alive.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/jobs/throughput.h"

namespace castor {

// What one request takes of the budgets.
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

  // Replaces the estimate once the true cost is known. It may grow past a budget: the request was
  // admitted and is not sent away again.
  void Adjust(int64_t tokens, int64_t bytes) noexcept;

  // Gives back all but so many bytes: the request is answered, and its answer has yet to leave.
  void KeepOnly(int64_t bytes) noexcept;

  // The request's work was done. Only such requests make the pace from which callers are told when
  // to return: what was refused, cancelled or failed gives back its share and tells nothing.
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

  // TOO_LARGE when `cost` exceeds a budget all by itself.
  absl::Status CheckAlone(const Cost& cost) const;

  // The same, then takes the share; QUEUE_FULL, with a hint when to return,
  // when it does not fit beside what is admitted.
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
