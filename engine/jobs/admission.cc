#include "engine/jobs/admission.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "engine/base/error.h"

namespace castor {
namespace {

// Bounds of the hint. The lower keeps refused callers from spinning; the upper keeps one slow
// second from sending them away for an hour.
constexpr std::chrono::milliseconds kMinRetry{5};
constexpr std::chrono::milliseconds kMaxRetry{10'000};
// The hint while nothing has finished yet, so that no rate is known.
constexpr std::chrono::milliseconds kUnknownRetry{200};

absl::Status CheckBudget(int64_t cost, int64_t budget, const char* what) {
  if (cost <= budget) return absl::OkStatus();
  return MakeError(Reason::kTooLarge, "the request takes " + std::to_string(cost) + " " + what +
                                          ", this engine admits " + std::to_string(budget));
}

}  // namespace

void Reservation::Adjust(int64_t tokens, int64_t bytes) noexcept {
  if (admission_ == nullptr) return;
  const Cost adjusted{cost_.requests, tokens, bytes};
  admission_->Replace(cost_, adjusted);
  cost_ = adjusted;
}

void Reservation::Release() noexcept {
  if (admission_ == nullptr) return;
  std::exchange(admission_, nullptr)->Return(cost_, finished_);
}

void Reservation::KeepOnly(int64_t bytes) noexcept {
  if (admission_ == nullptr) return;
  const Cost kept{0, 0, std::min(bytes, cost_.bytes)};
  admission_->Return({cost_.requests, cost_.tokens, cost_.bytes - kept.bytes}, finished_);
  cost_ = kept;
}

absl::Status Admission::CheckAlone(const Cost& cost) const {
  if (auto status = CheckBudget(cost.requests, budgets_.requests, "requests"); !status.ok()) {
    return status;
  }
  if (auto status = CheckBudget(cost.tokens, budgets_.tokens, "tokens"); !status.ok()) {
    return status;
  }
  return CheckBudget(cost.bytes, budgets_.bytes, "bytes");
}

absl::StatusOr<Reservation> Admission::Reserve(Cost cost) {
  if (auto status = CheckAlone(cost); !status.ok()) return status;
  std::chrono::milliseconds retry_after;
  const char* scarce;
  {
    MutexLock lock(mu_);
    // Subtraction rather than addition: no sum can overflow.
    const bool requests_fit = cost.requests <= budgets_.requests - in_use_.requests;
    const bool tokens_fit = cost.tokens <= budgets_.tokens - in_use_.tokens;
    const bool bytes_fit = cost.bytes <= budgets_.bytes - in_use_.bytes;
    if (requests_fit && tokens_fit && bytes_fit) {
      in_use_.requests += cost.requests;
      in_use_.tokens += cost.tokens;
      in_use_.bytes += cost.bytes;
      return Reservation(shared_from_this(), cost);
    }
    scarce = !requests_fit ? "requests" : !tokens_fit ? "tokens" : "bytes";
    retry_after = RetryAfter(cost, clock_->Now());
  }
  return QueueFull(std::string("the queue is full: no room in the budget of ") + scarce,
                   retry_after);
}

Cost Admission::in_use() const {
  MutexLock lock(mu_);
  return in_use_;
}

void Admission::Replace(const Cost& old_cost, const Cost& new_cost) noexcept {
  MutexLock lock(mu_);
  in_use_.tokens += new_cost.tokens - old_cost.tokens;
  in_use_.bytes += new_cost.bytes - old_cost.bytes;
}

void Admission::Return(const Cost& cost, bool finished) noexcept {
  const TimePoint now = clock_->Now();
  MutexLock lock(mu_);
  in_use_.requests -= cost.requests;
  in_use_.tokens -= cost.tokens;
  in_use_.bytes -= cost.bytes;
  if (!finished) return;
  requests_.Add(static_cast<double>(cost.requests), now);
  tokens_.Add(static_cast<double>(cost.tokens), now);
  bytes_.Add(static_cast<double>(cost.bytes), now);
}

// The time until, at the recent pace, enough has finished to make room in the scarcest budget.
std::chrono::milliseconds Admission::RetryAfter(const Cost& cost, TimePoint now) {
  double seconds = 0;
  bool known = true;
  const auto consider = [&](int64_t needed, int64_t used, int64_t budget, Throughput& pace) {
    const int64_t missing = needed - (budget - used);
    if (missing <= 0) return;
    const double rate = pace.Rate(now);
    if (rate < 1e-6) {
      known = false;
    } else {
      seconds = std::max(seconds, static_cast<double>(missing) / rate);
    }
  };
  consider(cost.requests, in_use_.requests, budgets_.requests, requests_);
  consider(cost.tokens, in_use_.tokens, budgets_.tokens, tokens_);
  consider(cost.bytes, in_use_.bytes, budgets_.bytes, bytes_);
  if (!known) return kUnknownRetry;
  const double capped = std::min(seconds * 1e3, static_cast<double>(kMaxRetry.count()));
  return std::clamp(std::chrono::milliseconds(static_cast<int64_t>(capped) + 1), kMinRetry,
                    kMaxRetry);
}

}  // namespace castor
