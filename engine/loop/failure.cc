#include "engine/loop/failure.h"

#include <iterator>

#include "engine/base/error.h"

namespace castor {
namespace {

// The number of device errors that refuse a request. After the first it is retried alone.
constexpr int kMaxDeviceErrors = 2;

AfterFailure Halve(JobList failed) {
  AfterFailure plan;
  if (failed.size() <= 1) {
    plan.refused = std::move(failed);
    return plan;
  }
  const auto middle = failed.begin() + static_cast<ptrdiff_t>(failed.size() / 2);
  JobList second(std::make_move_iterator(middle), std::make_move_iterator(failed.end()));
  failed.erase(middle, failed.end());
  plan.retries.push_back(std::move(failed));
  plan.retries.push_back(std::move(second));
  return plan;
}

}  // namespace

AfterFailure PlanRetries(JobList failed, const absl::Status& error) noexcept {
  if (ReasonOf(error) == Reason::kOutOfMemory) return Halve(std::move(failed));
  AfterFailure plan;
  for (auto& job : failed) {
    if (++job->device_errors >= kMaxDeviceErrors) {
      plan.refused.push_back(std::move(job));
    } else {
      plan.retries.emplace_back().push_back(std::move(job));
    }
  }
  return plan;
}

}  // namespace castor
