#include "engine/ledger/runs.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/attention/problem.h"

namespace castor {
namespace {

// Runs one upon another, each much shorter than the one below it.
constexpr size_t kMostDepth = 4;

// A batch of requests that are all shorter is passed by other tenants only. To pass costs a launch,
// and more of their kind would gain little by it.
constexpr double kLeastPassedUs = kShortWhileUs / 2;

// A run that takes longer than predicted is taken to need this part of its time so far once more.
constexpr double kOverrun = 0.1;

}  // namespace

double Runs::DoneUs(const Run& run, TimePoint now) {
  return run.done_us + (run.held_up ? 0 : std::max(0.0, Microseconds(run.since, now)));
}

double Runs::LeftUs(const Run& run, TimePoint now) {
  const double done = DoneUs(run, now);
  return std::max(run.plan.predicted_us - done, kOverrun * done);
}

double Runs::PassedByUs(const Run& run, TimePoint now) {
  if (run.plan.longest_us < kLeastPassedUs) return 0;
  return kMuchShorter * std::min(LeftUs(run, now), run.plan.longest_us);
}

Runs::Id Runs::Begin(RunPlan plan, TimePoint now) {
  plan.passes = plan.passes && !runs_.empty();
  if (plan.passes) {
    Run& below = runs_.back();
    below.done_us = DoneUs(below, now);
    below.held_up = true;
    below.since = now;
  }
  const auto gap_since = std::exchange(gap_since_, std::nullopt);
  runs_.push_back({.id = ++last_,
                   .plan = std::move(plan),
                   .gap_us = gap_since ? Microseconds(*gap_since, now) : 0,
                   .done_us = 0,
                   .passed_us = 0,
                   .since = now,
                   .held_up = false});
  const RunMemory held = memory();
  peak_ = {.activations = std::max(peak_.activations, held.activations),
           .workspace = std::max(peak_.workspace, held.workspace)};
  return last_;
}

double Runs::End(Id id, TimePoint now, bool completed, bool more) noexcept {
  const auto run =
      std::find_if(runs_.begin(), runs_.end(), [id](const Run& run) { return run.id == id; });
  const double done = DoneUs(*run, now);
  const bool tells = completed || done > run->plan.predicted_us;
  if (tells && run->plan.predicted_us > 0) {
    predicted_us_.Add(run->plan.predicted_us, now);
    measured_us_.Add(run->gap_us + done, now);
  }
  if (run->plan.passes && run != runs_.begin()) {
    Run& below = *std::prev(run);
    below.passed_us += Microseconds(below.since, now);
    below.since = now;
    below.held_up = false;
  }
  runs_.erase(run);
  if (runs_.empty() && more) gap_since_ = now;
  return done;
}

double Runs::Pace(TimePoint now) const {
  return std::clamp(
      (measured_us_.At(now) + kShortWhileUs) / (predicted_us_.At(now) + kShortWhileUs),
      1 / kMostPace, kMostPace);
}

// A few requests' runs make the pace of what comes half as doubtful.
double Runs::Doubt(TimePoint now) const {
  return kFewRequestsUs / (kFewRequestsUs + measured_us_.At(now));
}

Runs::Passage Runs::MayPass(TimePoint now) const {
  if (runs_.empty() || runs_.size() >= kMostDepth) return {.most_us = 0, .others_us = 0};
  const Run& run = runs_.back();
  const double done = DoneUs(run, now);
  // Before it has had time of its own, a short while may pass it. Turns between tenants are fair in
  // any case, so other tenants may take more.
  const auto most = [&](double own_share, double allowance_us, double us) {
    const double left = done * (1 - own_share) / own_share + allowance_us - run.passed_us;
    return std::max(0.0, std::min(us, left));
  };
  return {.most_us = most(kOwnShare, kShortWhileUs, PassedByUs(run, now)),
          .others_us = most(kOwnShareOfTenants, kFewRequestsUs, LeftUs(run, now)),
          .tenant = run.plan.tenant,
          .turn_middle = run.plan.turn_middle};
}

int64_t Runs::held_bytes() const {
  attention::Count held = 0;
  for (const Run& run : runs_) held += run.plan.device_bytes;
  return held.value();
}

RunMemory Runs::memory() const {
  attention::Count activations = 0;
  for (const Run& run : runs_) activations += run.plan.activation_bytes;
  return {.activations = activations.value(),
          .workspace = std::max<int64_t>(0, held_bytes() - activations.value())};
}

Runs::Wait Runs::WaitFor(double us, TimePoint now, int64_t beside) const {
  Wait wait;
  int64_t held = held_bytes();
  size_t depth = runs_.size();
  for (auto run = runs_.rbegin(); run != runs_.rend(); ++run, --depth) {
    const bool passes =
        wait.passed_us > 0 || (us <= PassedByUs(*run, now) && depth < kMostDepth && held <= beside);
    (passes ? wait.passed_us : wait.us) += LeftUs(*run, now);
    held -= run->plan.device_bytes;
  }
  return wait;
}

}  // namespace castor
