// The runs on the device now: the one that runs, and those that it has preempted. Each has a
// predicted time and memory, which tell how long it will still take and what may preempt it.
//
// A batch may preempt a run at a checkpoint in two cases. The batch is much shorter than what is
// left of the run, and the run has a long request. Or the batch is shorter, belongs to another
// tenant, and by start-time fair queueing is due in the first half of the run's service: so no
// tenant waits for the long batches of a greedy one. A preempted run keeps a share of the device:
// after a first allowance, its preemptors may take no more time than it has had itself, or three
// times as much if they belong to other tenants. Preemptors may be preempted in turn, up to a
// depth.
//
// Not thread-safe: the ledger guards it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/ledger/decaying_sum.h"
#include "engine/stats.h"

namespace castor {

// A run as it is known before it begins.
struct RunPlan {
  double predicted_us = 0;
  double longest_us = 0;                   // the predicted time of its longest request, alone
  std::optional<std::string> tenant = {};  // unset if its requests belong to several tenants
  double fair_midpoint = 0;      // the middle of its service in virtual time (fair_share.h)
  bool preempts = false;         // the run that began last is preempted until this one ends
  int64_t device_bytes = 0;      // memory of the device that it holds to its end
  int64_t activation_bytes = 0;  // the part of `device_bytes` for activations
};

// A short time on the device: too little to judge a run, a tenant or the machine by.
inline constexpr double kShortWhileUs = 20'000;
// A few short requests, or a longer one. A tenant that asks for less than its share may take so
// much ahead of its turn; more would delay the others noticeably.
inline constexpr double kFewRequestsUs = 100'000;

class Runs {
 public:
  using Id = uint64_t;

  // The largest slowdown that is believed, as a factor; its inverse is the smallest.
  static constexpr double kMaxSlowdown = 8;

  // A preemptor takes at most this fraction of what is left of the run, and of the run's longest
  // request. So preempted requests are delayed little in proportion to their own time, and a batch
  // of short requests is not preempted by similar ones.
  static constexpr double kMuchShorter = 0.25;

  // The smallest share of the device that a run has between its first moment and its end. The
  // second is for preemptors of other tenants, whose turns are fair in any case.
  static constexpr double kOwnShare = 0.5;
  static constexpr double kOwnShareOfTenants = kOwnShare * kOwnShare;

  // The time constant with which ended runs are forgotten.
  static constexpr std::chrono::seconds kRecent{1};

  static constexpr int64_t kAnyBytes = std::numeric_limits<int64_t>::max();

  Id Begin(RunPlan plan, TimePoint now);

  // Ends a run. A run that was not `completed` and took less than predicted does not count for the
  // slowdown. `more`: other requests are ready to run. Returns how long the run had the device, in
  // microseconds.
  double End(Id id, TimePoint now, bool completed, bool more) noexcept;

  // Recent actual / predicted time between run ends, while work was ready. Other work on the
  // machine, such as refusing callers, slows runs and the time between them long before predictions
  // adapt.
  double Slowdown(TimePoint now) const;
  // How uncertain the slowdown is: 1 if no run has ended recently, towards 0 with the time of those
  // that have.
  double SlowdownUncertainty(TimePoint now) const;

  // The longest batch that may preempt the run that began last, in predicted microseconds.
  struct PreemptionLimit {
    double most_us = std::numeric_limits<double>::infinity();
    double others_us = most_us;  // for tenants other than `tenant`, before `fair_midpoint`
    std::optional<std::string> tenant = {};
    double fair_midpoint = 0;

    // The limit for a batch that begins with a request of the tenant `of`, as long as its virtual
    // time is not known.
    double MostUsOf(const std::string& of) const {
      return tenant && of != *tenant ? std::max(most_us, others_us) : most_us;
    }
    // The same for a batch that ends at the virtual time `end`.
    double MostUs(const std::string& of, double end) const {
      return end < fair_midpoint ? MostUsOf(of) : most_us;
    }
    // Whether no batch may preempt.
    bool closed() const { return most_us <= 0 && (!tenant || others_us <= 0); }
  };
  PreemptionLimit LimitNow(TimePoint now) const;

  bool empty() const { return runs_.empty(); }

  // The bytes of the device's memory that all runs hold together.
  int64_t held_bytes() const;
  // The same by purpose, and the maximum of each so far.
  RunMemory memory() const;
  const RunMemory& peak_memory() const { return peak_; }

  // How long a request of `us` would wait if no other waited, and what would then be left of the
  // runs that it preempts, which keep their share of the device meanwhile. It can preempt a run
  // only if that one and those below it hold at most `room` bytes together.
  struct Wait {
    double us = 0;
    double preempted_us = 0;
  };
  Wait WaitFor(double us, TimePoint now, int64_t room = kAnyBytes) const;

 private:
  struct Run {
    Id id;
    RunPlan plan;
    double gap_us;        // between the previous run's end and this one's begin, if it was ready
    double done_us;       // time on the device up to `since`
    double preempted_us;  // time that its preemptors have taken
    TimePoint since;      // when it last began or resumed, or was preempted
    bool preempted;
  };

  static double DoneUs(const Run& run, TimePoint now);
  static double LeftUs(const Run& run, TimePoint now);
  // The longest batch that may preempt it, as far as its own length decides.
  static double MaxPreemptorUs(const Run& run, TimePoint now);

  std::vector<Run> runs_;  // in the order in which they began
  Id last_ = 0;
  RunMemory peak_;
  // Sums over ended runs.
  DecayingSum predicted_us_{kRecent};
  DecayingSum measured_us_{kRecent};
  std::optional<TimePoint> gap_since_;  // the last run's end, if other requests were ready then
};

}  // namespace castor
