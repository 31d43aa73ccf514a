// The runs on the device now, the running one and those that it has passed, with their predicted
// times and memory: how long each will still take, and whether another may pass.
//
// A run passes another at a checkpoint, if it is much shorter than what is left of that one, and
// that one has a long request. Or if it is shorter, of another tenant, and by start-time fair
// queueing due in the first half of the other's service: so nobody waits for the long batches of a
// greedy tenant. The run that is passed keeps a share of the device: those that pass may take no
// more time than it has had itself, or three times as much if they are other tenants', after a
// first allowance. A run that passes may be passed in turn, up to a depth.
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

// What is known of a run before it begins.
struct RunPlan {
  double predicted_us = 0;
  double longest_us = 0;  // of its longest request, alone
  // Of all its requests; unset if they are of several.
  std::optional<std::string> tenant = {};
  double turn_middle = 0;        // virtual: the middle of its service (fair_share.h)
  bool passes = false;           // the run that began last is held up until this one ends
  int64_t device_bytes = 0;      // of the device's memory, that it holds to its end
  int64_t activation_bytes = 0;  // of these
};

// A short while on the device: too little to judge a run, a tenant or the machine by.
inline constexpr double kShortWhileUs = 20'000;
// A few short requests at once, or one that is not so short: what a tenant may have beyond its turn
// that asks for less than its share. Longer, and it would hold up the others noticeably.
inline constexpr double kFewRequestsUs = 100'000;

class Runs {
 public:
  using Id = uint64_t;

  // The bounds of the pace; and of how much longer than predicted anything counts as.
  static constexpr double kMostPace = 8;

  // A run may pass another if it takes at most this part of what is left of that one, and of its
  // longest request. Those that are passed are then delayed by little in proportion to what they
  // take themselves; and a batch of short requests is not passed by more of their kind.
  static constexpr double kMuchShorter = 0.25;

  // Of the time from a run's first moment on, the least part that it has itself; and where it is
  // passed by those of other tenants, whose turns are fair in any case.
  static constexpr double kOwnShare = 0.5;
  static constexpr double kOwnShareOfTenants = kOwnShare * kOwnShare;

  // How long a run that has ended counts.
  static constexpr std::chrono::seconds kRecent{1};

  static constexpr int64_t kAnyBytes = std::numeric_limits<int64_t>::max();

  Id Begin(RunPlan plan, TimePoint now);

  // Ends a run; one that was not `completed`, and took less than predicted, says nothing about the
  // pace. `more`: others are ready to run. Returns for how long it had the device, in microseconds.
  double End(Id id, TimePoint now, bool completed, bool more) noexcept;

  // How many times as long as predicted it has taken of late from one run's end to the next one's
  // while there was work: what else the machine has to do, such as refusing callers, slows it down
  // long before predictions adapt, in runs and between them.
  double Pace(TimePoint now) const;
  // How little is known of the pace: 1 if no run has ended of late, towards 0 with the time of
  // those that have.
  double Doubt(TimePoint now) const;

  // What may pass the run that began last: runs of at most so many predicted microseconds.
  struct Passage {
    double most_us = std::numeric_limits<double>::infinity();
    double others_us = most_us;  // of other tenants than this one, that end by then
    std::optional<std::string> tenant = {};
    double turn_middle = 0;

    // The longest that may begin with a request of this tenant, if it is its turn; and if its
    // virtual time at the end is `end`.
    double MostUsOf(const std::string& of) const {
      return tenant && of != *tenant ? std::max(most_us, others_us) : most_us;
    }
    double MostUs(const std::string& of, double end) const {
      return end < turn_middle ? MostUsOf(of) : most_us;
    }
    // Whether nothing may pass.
    bool closed() const { return most_us <= 0 && (!tenant || others_us <= 0); }
  };
  Passage MayPass(TimePoint now) const;

  bool empty() const { return runs_.empty(); }

  // Of the device's memory, what the runs hold together.
  int64_t held_bytes() const;
  // The same by what it is for, and the most of each so far.
  RunMemory memory() const;
  const RunMemory& peak_memory() const { return peak_; }

  // The time until a request of `us` can begin, if none other waits; and what is left of the runs
  // that it passes then, which keep their share of the device meanwhile. It passes those beside
  // which it fits: together with the ones below they hold at most `beside` bytes.
  struct Wait {
    double us = 0;
    double passed_us = 0;
  };
  Wait WaitFor(double us, TimePoint now, int64_t beside = kAnyBytes) const;

 private:
  struct Run {
    Id id;
    RunPlan plan;
    double gap_us;     // from the end of the run before, while this one could have begun
    double done_us;    // up to `since`
    double passed_us;  // that others took meanwhile
    TimePoint since;   // when it last began or went on; unless it is held up
    bool held_up;
  };

  static double DoneUs(const Run& run, TimePoint now);
  static double LeftUs(const Run& run, TimePoint now);
  // The longest that may pass it, as far as it depends on its own length.
  static double PassedByUs(const Run& run, TimePoint now);

  std::vector<Run> runs_;  // in order of their begin
  Id last_ = 0;
  RunMemory peak_;
  // Of runs that have ended.
  DecayingSum predicted_us_{kRecent};
  DecayingSum measured_us_{kRecent};
  std::optional<TimePoint> gap_since_;  // the last run's end, if more were ready then
};

}  // namespace castor
