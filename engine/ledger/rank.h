// A request's place among those of its tenant: set once, when it is admitted, and never changed.
//
// The order is priority with ageing and, within a priority, earliest deadline first. One point in
// time expresses both, the moment by which the request should be served:
//
//   due = min(deadline, arrival + kPatience) + kHeadStart for each level below the highest
//
// So among requests of one priority the earliest deadline is first. A request without a deadline,
// or with a distant one, counts as due after kPatience, so that urgent ones do not starve it. A
// request also ages: it goes before those of the next higher priority that arrive about kHeadStart
// later.
//
// Ranks of different tenants are not compared: fair_share.h orders tenants.
#pragma once

#include <algorithm>
#include <chrono>
#include <compare>
#include <optional>

#include "engine/base/clock.h"
#include "engine/engine.h"

namespace castor {

// The smaller rank is served first.
struct Rank {
  TimePoint due{};
  Ticket sequence = 0;  // the order of arrival; unique, so ranks never tie

  auto operator<=>(const Rank&) const = default;
};

inline constexpr std::chrono::seconds kPatience{5};
inline constexpr std::chrono::seconds kHeadStart{10};

inline Rank RankOf(Priority priority, std::optional<TimePoint> deadline, TimePoint arrival,
                   Ticket sequence) {
  const TimePoint patience = arrival + kPatience;
  const int below = static_cast<int>(Priority::kHigh) - static_cast<int>(priority);
  return {std::min(deadline.value_or(patience), patience) + below * kHeadStart, sequence};
}

}  // namespace castor
