#include "client/load/schedule/schedule.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "client/load/schedule/arrivals.h"
#include "client/load/schedule/picker.h"
#include "client/load/schedule/replay.h"

namespace castor::load {
namespace {

double Seconds(std::chrono::nanoseconds time) { return static_cast<double>(time.count()) * 1e-9; }

Schedule ScheduleOf(const OpenLoop& load, const Workload& workload, double verify_share) {
  Arrivals arrivals(load, Seconds(workload.duration), Seconds(workload.warm_up),
                    MixSeed(workload.seed, 0));
  if (!(arrivals.expected() <= static_cast<double>(kMaxPlanned))) {
    throw std::runtime_error("the plan would have some " +
                             std::to_string(std::llround(std::min(arrivals.expected(), 1e18))) +
                             " requests, and at most " + std::to_string(kMaxPlanned) +
                             " fit; lower the rate or shorten the run");
  }
  Picker picker(workload, verify_share, workload.seed, 0);
  Schedule schedule;
  schedule.reserve(static_cast<size_t>(arrivals.expected() * 1.02) + 64);
  for (double time = 0; arrivals.Next(&time);) {
    Planned planned = picker.Next();
    planned.at_ns = static_cast<int64_t>(std::floor(time * 1e9 + 0.5));
    schedule.push_back(planned);
  }
  return schedule;
}

}  // namespace

Schedule MakeSchedule(const Workload& workload, double verify_share) {
  if (const auto* open = std::get_if<OpenLoop>(&workload.load)) {
    return ScheduleOf(*open, workload, verify_share);
  }
  if (std::holds_alternative<Replay>(workload.load)) return ReplaySchedule(workload, verify_share);
  throw std::runtime_error("a closed loop has no plan of times");
}

EndlessSchedule::EndlessSchedule(const Workload& workload, double verify_share, uint64_t stream)
    : picker_(std::make_unique<Picker>(workload, verify_share, workload.seed, stream)) {}

EndlessSchedule::EndlessSchedule(EndlessSchedule&&) noexcept = default;
EndlessSchedule& EndlessSchedule::operator=(EndlessSchedule&&) noexcept = default;
EndlessSchedule::~EndlessSchedule() = default;

Planned EndlessSchedule::Next() { return picker_->Next(); }

}  // namespace castor::load
