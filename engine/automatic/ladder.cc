#include "engine/automatic/ladder.h"

#include <algorithm>
#include <utility>

namespace castor::attention {
namespace {

// How far an error may lie below what LossOf lets expect. A rung that would need more luck is
// skipped.
constexpr double kBetterThanExpected = 2;

}  // namespace

Ladder::Ladder(std::vector<Rung> rungs, double max_relative_error)
    : rungs_(std::move(rungs)), max_relative_error_(max_relative_error) {}

// Whether `rung` may meet the allowance, where current() had this error. NaN fails the comparison.
bool Ladder::Promises(size_t rung, double error) const {
  const double expected = error * LossOf(rungs_[rung].kernel) / LossOf(current().kernel);
  return expected <= kBetterThanExpected * max_relative_error_;
}

bool Ladder::Accept(const Fidelity& estimate, double measured_us) {
  attempts_.push_back({.rung = current_, .estimate = estimate, .measured_us = measured_us});
  // A NaN estimate fails the comparison.
  const auto error = [](const Attempt& attempt) { return attempt.estimate.relative_error; };
  if (error(attempts_.back()) <= max_relative_error_) return true;
  if (current_ + 1 < rungs_.size()) {
    size_t next = current_ + 1;
    while (next + 1 < rungs_.size() && !Promises(next, estimate.relative_error)) ++next;
    current_ = next;
    return false;
  }
  const auto best =
      std::min_element(attempts_.begin(), attempts_.end(),
                       [&](const Attempt& a, const Attempt& b) { return error(a) < error(b); });
  settled_ = true;
  if (best->rung == current_) return true;
  current_ = best->rung;
  return false;
}

std::optional<Fidelity> Ladder::fidelity() const {
  for (auto attempt = attempts_.rbegin(); attempt != attempts_.rend(); ++attempt) {
    if (attempt->rung == current_) return attempt->estimate;
  }
  return std::nullopt;
}

std::vector<RejectedKernel> Ladder::rejected() const {
  std::vector<RejectedKernel> rejected;
  for (const Attempt& attempt : attempts_) {
    if (attempt.rung == current_) continue;
    rejected.push_back({.kernel = rungs_[attempt.rung].kernel,
                        .measured_us = attempt.measured_us,
                        .relative_error = attempt.estimate.relative_error});
  }
  return rejected;
}

}  // namespace castor::attention
