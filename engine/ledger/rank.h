// A request's place among those of its tenant: made once, when it is admitted, and never changed.
//
// The order is priority with ageing and, within it, earliest deadline first. Both are one point in
// time, the moment by which the order wants the request served:
//
//   due = min(deadline, arrival + kPatience) + kHeadStart for each level below the highest
//
// So among requests of one priority the earliest deadline is first. Without a deadline, or with a
// distant one, a request counts as due after kPatience, so that urgent ones do not starve it. And
// one of a lower priority goes before those of a higher that come more than kHeadStart after it, or
// a little earlier: it has aged.
//
// Between tenants, whose ranks are not compared, see fair_share.h.
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
  Ticket sequence = 0;  // order of arrival; unique, so ranks never tie

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
